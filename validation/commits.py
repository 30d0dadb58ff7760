"""Commits that slow the lookup by a known share, or only change a comment, start by start."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import git, overlay, starts, subject, wheel
from harness.fix_removal import SCHEDULER
from harness.starts import Between
from harness.vocabulary import Alignment

STARTS = 6
"""Of each commit, in turn."""
SHARES = {"a comment": 0.0, "5 % of TTFT": 0.05, "20 % of TTFT": 0.2}
"""What a commit adds to the lookup."""
_LOOKUP = "    def get_num_new_matched_tokens("
_COMMENT = "    # A comment.\n"
_SPIN = "        import time\n        until = time.perf_counter() + {seconds}\n"
_SPIN += "        while time.perf_counter() < until:\n            pass\n"


@dataclass(frozen=True)
class Seen:
    """What the starts of one commit say beside those of its parent."""

    change: str
    few: Between
    """With one start of each."""
    all: Between


def measure(ttft: float) -> Iterator[Seen | None]:
    """Start engines in turn, None after each; then what was seen of every commit.

    The commits have the fix's branch as their parent each, so that the delays do not add up.

    Args:
        ttft: seconds to the first token, of which the delays are shares.
    """
    with tempfile.TemporaryDirectory() as folder:
        overlays = list(_overlays(Path(folder), ttft))
        medians: list[list[float]] = [[] for _ in overlays]
        for start in range(STARTS):
            for laid, found in zip(overlays, medians, strict=True):
                found.append(_start(laid, start))
                yield None
    base, *others = medians
    for change, found in zip(SHARES, others, strict=True):
        yield Seen(change, starts.compare(base[:1], found[:1]), starts.compare(base, found))


def _overlays(folder: Path, ttft: float) -> Iterator[Path]:
    """The embedded subject's fix branch, then each commit on top of it."""
    packages = wheel.running_site_packages()
    made = subject.create(folder / "subject", packages)
    file = made.repository / SCHEDULER
    source = file.read_text()
    who = ("-c", "user.name=validation", "-c", "user.email=validation@localhost")
    for index, share in enumerate((0.0, *SHARES.values())):
        if index > 0:  # the first is the branch itself
            file.write_text(_changed(source, share * ttft))
            git.output(made.repository, "reset", "--quiet", "--soft", made.wheel_ref or "")
            git.output(made.repository, *who, "commit", "--quiet", "-am", f"Change {index}")
        laid = folder / f"overlay-{index}"
        head = git.lines(made.repository, "rev-parse", "HEAD")[0]
        overlay.make(made.repository, head, made.wheel_ref or "", packages, laid)
        yield laid


def _changed(source: str, seconds: float) -> str:
    """The scheduler with a lookup that takes so much longer, or with a comment for 0."""
    before, lookup, after = source.partition(_LOOKUP)
    if seconds == 0:
        return before + _COMMENT + lookup + after
    signature, docstring, body = after.split('"""', 2)
    spin = _SPIN.format(seconds=seconds)
    return f'{before}{lookup}{signature}"""{docstring}"""\n{spin}{body}'


def _start(laid: Path, seed: int) -> float:
    """The median time to the first token of one engine on this overlay."""
    command = [sys.executable, "-m", "validation.practice", Alignment.ALIGNED, str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(laid)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(finished.stdout.splitlines()[-1]))
