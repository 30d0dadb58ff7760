"""`make validate`: measure, and write what came out as a page of the documentation."""

import time
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from harness import engine, estimate, hardware, numbers, profiles, protocol, provenance, sampling
from harness.files import write_atomically
from harness.vocabulary import Arm
from harness.wording import percent, times
from validation import commits, delays, pairing, practice
from validation.commits import Seen
from validation.delays import RUNS, SHARES, Run
from validation.practice import Practice

PAGE = Path(__file__).parents[1] / "docs" / "validation.md"
HALF_WIDTH = 0.03


@dataclass(frozen=True)
class Ours:
    """One cell of a sweep until its fix cost is known to within `HALF_WIDTH`."""

    seconds: float
    pairs: int
    ttft: float
    """Seconds, median."""
    start: float
    """Seconds that the one engine of a sweep takes to start, shared by all its cells."""


def main() -> None:
    """Run everything and write the page."""
    with Progress() as progress:
        steps = 2 + RUNS + commits.STARTS * (1 + len(commits.SHARES))
        task = progress.add_task("validation", total=steps)
        began = time.monotonic()
        with engine.start(profiles.PROFILES["cpu-tiny"]) as running:
            start = time.monotonic() - began
            for index in range(practice.WARM_UP):
                protocol.take(running, delays.CELL, 1, index)
            ours = _ours(running, start)
            progress.advance(task)
            runs = []
            for run in delays.runs(running):
                runs.append(run)
                progress.advance(task)
        now = practice.measure()
        progress.advance(task)
        seen = []
        for outcome in commits.measure(ours.ttft):
            if outcome is None:
                progress.advance(task)
            else:
                seen.append(outcome)
    parts = (_head(), _delays(runs), _pairing(runs), _practice(ours, now), _commits(seen))
    text = "\n".join(line for part in parts for line in part)
    write_atomically(PAGE, text.encode())
    print(text)


def _ours(running: engine.Engine, start: float) -> Ours:
    began = time.monotonic()
    samples, _ = sampling.collect(
        sampling.Rule(profiles.MINIMUM_PAIRS, HALF_WIDTH, seconds=120.0),
        lambda index: protocol.take(running, delays.CELL, 2, index),
        numbers.fix_cost,
    )
    seconds = [sample.arms[Arm.RELOAD_ALIGNED].ttft for sample in samples]
    return Ours(time.monotonic() - began, len(samples), estimate.median(seconds).value, start)


def _head() -> list[str]:
    return [
        "# What the instrument can do",
        "",
        f"Measured by `make validate` on {provenance.now()[:10]}, {hardware.cpu_name()}, "
        f"{len(hardware.cores())} cores, profile cpu-tiny, cell [{delays.CELL.label}].",
        "",
    ]


def _delays(runs: list[Run]) -> list[str]:
    pairs = [len(run.samples) for run in runs]
    lines = [
        "## Injected delays",
        "",
        f"A known delay is added to the lookup of one arm, in {len(runs)} runs. A run goes on "
        f"until two undelayed arms are known to be equal to within {delays.RULE.half_width:.1%}, "
        f"here {min(pairs)} to {max(pairs)} pairs and "
        f"{sum(run.seconds for run in runs) / len(runs):.0f} s on average. A delay costs more than "
        f"its own length, for what ran before it has gone cold meanwhile; so an interval is held "
        f"against what all runs together found.",
        "",
        "| delay | found by all runs | flagged as a change | interval covers what all found |",
        "|---|---|---|---|",
    ]
    for share in SHARES:
        found = [run.seen(share) for run in runs]
        flagged = sum(not one.includes(1.0) for one in found)
        truth = estimate.pooled(run.ratios(share) for run in runs)
        covers = sum(one.includes(truth.value) for one in found)
        lines.append(
            f"| {share:.0%} | {truth.value - 1:.1%} ({truth.low - 1:.1%} to {truth.high - 1:.1%}) "
            f"| {flagged} of {len(runs)} | {covers} of {len(runs)} |"
        )
    return [*lines, ""]


def _pairing(runs: list[Run]) -> list[str]:
    saved = pairing.saving(runs)
    return [
        "## Paired against unpaired",
        "",
        f"For the same interval, two averages taken in the same run need {saved.within:.1f} times "
        f"as many samples as pairs, and two averages from runs one after the other "
        f"{saved.between:.1f} times as many.",
        "",
    ]


def _practice(ours: Ours, now: Practice) -> list[str]:
    cells = 2 * len(profiles.PROFILES["cpu-tiny"].chunks) * 4
    paired = ours.seconds + ours.start / cells
    today = now.seconds_to(HALF_WIDTH)
    return [
        "## Against an engine for each cell and alignment",
        "",
        f"Medians of {practice.REQUESTS} requests differ from start to start by {now.spread:.1%} "
        f"(deviation over {practice.STARTS} starts of either alignment, "
        f"{now.seconds_a_start:.1f} s each).",
        "",
        f"| to know the fix cost of one cell to within {HALF_WIDTH:.0%} | seconds |",
        "|---|---|",
        f"| paired, in the one engine of a sweep ({ours.pairs} pairs) | {paired:.1f} |",
        f"| two averages, engines started until they agree so well | {today:.0f} |",
        "",
        f"That is {today / paired:.0f} times as fast.",
        "",
    ]


def _commits(seen: list[Seen]) -> list[str]:
    lines = [
        "## Between commits",
        "",
        f"Each commit is compared with its parent, the fix; {commits.STARTS} starts of each, in "
        f"turn.",
        "",
        "| what the commit adds | TTFT against without | what is said | would have been seen "
        "| with one start of each |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.change} | {times(one.all.ratio)} | {one.all.change} "
        f"| {percent(one.all.detectable)} | {one.few.change} below {percent(one.few.detectable)} |"
        for one in seen
    ]
    return [*lines, ""]


if __name__ == "__main__":
    main()
