"""The main job: asv over the subject's two branches, from nothing to a readable answer."""

import subprocess
import sys
from pathlib import Path

from harness import asv_names, comparison, profiles, subject
from harness.comparison import Comparison
from harness.errors import PREFIX, FixcostError
from harness.subject import Subject

RELOAD_BENCHMARKS = "^reload[.]"
_EXPECTED = (0, 2)  # asv says 2 where a benchmark failed, as a speed of wrong output must


def prepare(conf_path: Path) -> Subject:
    """Make what `asv run` needs: a registered machine and, unless the user chose one, a subject.

    Raises:
        FixcostError: this machine cannot run the profile, the subject cannot be made, or the
            user's own is not usable.
    """
    profiles.check_device(profiles.choose())
    if asv_names.registered_machine() is None:
        quiet("machine", "--yes", folder=conf_path.parent)
    chosen = subject.current(conf_path)
    if chosen.repository == conf_path.parent / subject.FOLDER:
        return subject.restore(conf_path)
    return chosen


def run(conf_path: Path, log: Path, more_starts: int = 0) -> Comparison:
    """Measure both branches with asv, raw samples recorded, and compare them.

    Args:
        conf_path: asv.conf.json.
        more_starts: instead of measuring anew, start each branch's engine so many times more, in
            turn, and add what comes out to what is stored.
        log: where everything goes that asv prints; the terminal shows its steps only.

    Raises:
        FixcostError: a sweep failed, asv stopped, or nothing was measured on one of the branches.
    """
    chosen = prepare(conf_path)
    print("asv measures both branches; where an output is wrong, its times count as failed.")
    if more_starts:
        comparison.load(conf_path, chosen.base, chosen.fix)  # else there is nothing to add to
    arguments = ["--append-samples"] if more_starts else []
    for start in range(1, more_starts + 1 if more_starts else 2):
        if more_starts:
            print(f"Start {start} of {more_starts} more of each branch.")
        measure(conf_path, log, RELOAD_BENCHMARKS, *arguments)
    try:
        return comparison.load(conf_path, chosen.base, chosen.fix)
    except FixcostError as error:
        raise FixcostError(f"{error} What asv printed is in {log}.") from None


def quiet(*arguments: str, folder: Path) -> None:
    """Run an asv command whose output nobody reads.

    Raises:
        FixcostError: it failed; the sentence has the last thing that asv said.
    """
    command = [sys.executable, "-m", "asv", *arguments]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        reason = " ".join((finished.stderr or finished.stdout).strip().splitlines()[-1:])
        raise FixcostError(f"asv {arguments[0]} failed: {asv_names.without_step(reason)}")


def measure(conf_path: Path, log: Path, benchmarks: str, *arguments: str) -> None:
    """Run benchmarks by asv, print its steps and keep all that it says in `log`.

    Args:
        conf_path: asv.conf.json.
        log: is written anew.
        benchmarks: which ones, as a regular expression.
        arguments: what else `asv run` is told, such as the commits.

    Raises:
        FixcostError: asv stopped, or a benchmark said what the user must know.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    raw = ("--record-samples", "--show-stderr")
    command = [sys.executable, "-m", "asv", "run", "--bench", benchmarks, *raw, *arguments]
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(command, cwd=conf_path.parent, stdout=subprocess.PIPE, text=True) as asv,
    ):
        reason = ""
        try:
            for line in asv.stdout or ():
                kept.write(line)
                reason = line.partition(PREFIX)[2].strip() or reason
                if asv_names.is_step(line):
                    print(line.rstrip(), flush=True)
        except KeyboardInterrupt:
            asv.wait()  # the terminal has interrupted it as well; it ends its own children
            raise
    if reason:
        raise FixcostError(reason)
    if asv.returncode not in _EXPECTED:
        raise FixcostError(f"asv stopped with exit code {asv.returncode}: see {log}.")
