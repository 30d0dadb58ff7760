"""What the reload benchmarks share: their parameters, and the one sweep that all of them read."""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from harness import energy, record, verdict
from harness.cells import Cell
from harness.errors import PREFIX, FixcostError
from harness.record import CellResult
from harness.verdict import Verdict
from harness.vocabulary import REPORTED_ARMS, Arm, Offset, Scenario

SEED = 0
CHUNKS = (2, 3, 4, 8)
CELL_PARAMS = ([s.value for s in Scenario], [o.value for o in Offset], list(CHUNKS))
CELL_NAMES = ["scenario", "offset", "chunks"]
ARM_PARAMS = ([arm.value for arm in REPORTED_ARMS], *CELL_PARAMS)
ARM_NAMES = ["arm", *CELL_NAMES]


class WrongOutputError(Exception):
    """An arm whose output is wrong has no speed."""


class Swept:
    """A benchmark that reads a cell of the sweep of the commit under test."""

    timeout = 60

    def setup_cache(self) -> Path:
        """Measure every cell once; all benchmarks of a commit read this one record."""
        # Here, for every number forks this process.
        from harness import cells, places, profiles, runs, sweep, vllm_names

        try:
            commit = os.environ.get("ASV_COMMIT")
            runs.begin(places.ASV_CONF, commit)
            profile = profiles.choose()
            version = commit[:12] if commit else f"v{vllm_names.installed_version()}"
            place = sweep.place_of(profile, version)
            swept = sweep.run(profile, cells.grid(profile.chunks), place, seed=SEED, commit=commit)
            runs.keep(places.ASV_CONF, swept)
        except FixcostError as error:
            if error.__cause__ is not None:  # the subject's own code may be at fault: for the log
                traceback.print_exception(error.__cause__)
                runs.end(places.ASV_CONF, commit)
            sys.exit(f"{PREFIX}{error}")
        except OSError as error:
            sys.exit(f"{PREFIX}{error.strerror or error}: {error.filename}.")
        return place

    setup_cache.timeout = 4 * 3600  # type: ignore[attr-defined]


def read(place: Path, scenario: str, offset: str, chunks: int) -> CellResult:
    """The cell of the sweep in `place`; one that its profile leaves out is skipped."""
    result = record.read_cell(place, Cell(Scenario(scenario), chunks, Offset(offset)))
    if result is None:
        raise NotImplementedError(f"The profile has no cell of {chunks} chunks.")
    return result


def read_metered(place: Path, scenario: str, offset: str, chunks: int, arm: Arm) -> CellResult:
    """The same; an arm without energy there is skipped, with the reason."""
    result = read(place, scenario, offset, chunks)
    header = record.read_header(place)
    assert header is not None
    if reason := energy.absence(header, result, arm):
        raise NotImplementedError(f"Energy is n/a: {reason}")
    return result


def judge(place: Path, result: CellResult, arm: Arm) -> Verdict:
    """The verdict on this arm, by the oracle of the sweep in `place`."""
    header = record.read_header(place)
    assert header is not None and header.oracle is not None
    return verdict.judge(result, arm, header.oracle)


def check_output(place: Path, result: CellResult, arm: Arm) -> None:
    """Raise `WrongOutputError` if the output of this arm is wrong."""
    if judge(place, result, arm) is Verdict.WRONG:
        raise WrongOutputError(f"Wrong output, so no speed: {arm}, {result.cell.label}.")


def with_samples(samples: Sequence[float]) -> dict[str, object]:
    """The answer of a `track_` benchmark; asv can append the samples of later starts to it."""
    return {"samples": list(samples), "number": 1}
