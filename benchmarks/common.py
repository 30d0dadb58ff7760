"""What the reload benchmarks share: their parameters, and the one sweep that all of them read."""

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import energy, record, verdict
from harness.cells import Cell
from harness.errors import PREFIX, FixcostError
from harness.record import CellResult, Header
from harness.verdict import Verdict
from harness.vocabulary import REPORTED_ARMS, Arm, CacheMode, Offset, Scenario

SEED = 0
CHUNKS = (2, 3, 4, 8)
CELL_PARAMS = ([s.value for s in Scenario], [o.value for o in Offset], list(CHUNKS))
CELL_NAMES = ["scenario", "offset", "chunks"]
ARM_PARAMS = ([arm.value for arm in REPORTED_ARMS], *CELL_PARAMS)
ARM_NAMES = ["arm", *CELL_NAMES]


class WrongOutputError(Exception):
    """An arm whose output is wrong has no speed."""


SWEEP_SECONDS = 4 * 3600
"""After which asv ends a sweep."""


class Swept:
    """A benchmark that reads a cell of the sweep of the commit under test, in cache mode `all`."""

    timeout = 60

    def setup_cache(self) -> Path:
        """Measure every cell once; all benchmarks of a commit and mode read this one record."""
        return sweep_once(CacheMode.ALL)

    setup_cache.timeout = SWEEP_SECONDS  # type: ignore[attr-defined]

    def setup(self, place: Path, *cell: Any) -> None:
        """Read the cell; asv skips a benchmark whose setup says that it is not implemented."""
        self.result = read(place, *cell)


def sweep_once(mode: CacheMode) -> Path:
    """Measure every cell in this cache mode; where the code has no such mode, there is no record.

    Ends the process with a sentence where the sweep fails.
    """
    # Here, for every number forks this process.
    from harness import cells, places, profiles, runs, sweep, vllm_names

    commit = os.environ.get("ASV_COMMIT")
    try:
        profile = replace(profiles.choose(), cache_mode=mode)
        version = commit[:12] if commit else f"v{vllm_names.installed_version()}"
        place = sweep.place_of(profile, version)
        if mode not in vllm_names.cache_modes():
            return place
        runs.begin(places.ASV_CONF, commit, mode)
        swept = sweep.run(profile, cells.grid(profile.chunks), place, seed=SEED, commit=commit)
        runs.keep(places.ASV_CONF, swept)
    except FixcostError as error:
        if error.__cause__ is not None:  # the subject's own code may be at fault: for the log
            traceback.print_exception(error.__cause__)
            runs.end(places.ASV_CONF, commit, mode)
        sys.exit(f"{PREFIX}{error}")
    except OSError as error:
        sys.exit(f"{PREFIX}{error.strerror or error}: {error.filename}.")
    return place


def header_of(place: Path) -> Header:
    """The header of the sweep in `place`; all that would read it is skipped where there is none."""
    found = record.read_header(place)
    if found is None:
        raise NotImplementedError("This vLLM has no such Mamba cache mode.")
    return found


def read(place: Path, scenario: str, offset: str, chunks: int) -> CellResult:
    """The cell of the sweep in `place`; one that its profile leaves out is skipped."""
    header_of(place)
    result = record.read_cell(place, Cell(Scenario(scenario), chunks, Offset(offset)))
    if result is None:
        raise NotImplementedError(f"The profile has no cell of {chunks} chunks.")
    return result


def read_metered(place: Path, scenario: str, offset: str, chunks: int, arm: Arm) -> CellResult:
    """The same; an arm without energy there is skipped, with the reason."""
    result = read(place, scenario, offset, chunks)
    if reason := energy.absence(header_of(place), result, arm):
        raise NotImplementedError(f"Energy is n/a: {reason}")
    return result


def judge(place: Path, result: CellResult, arm: Arm) -> Verdict:
    """The verdict on this arm, by the oracle of the sweep in `place`."""
    oracle = header_of(place).oracle
    assert oracle is not None
    return verdict.judge(result, arm, oracle)


def check_output(place: Path, result: CellResult, arm: Arm) -> None:
    """Raise `WrongOutputError` if the output of this arm is wrong."""
    if judge(place, result, arm) is Verdict.WRONG:
        raise WrongOutputError(f"Wrong output, so no speed: {arm}, {result.cell.label}.")


def with_samples(samples: Sequence[float]) -> dict[str, object]:
    """The answer of a `track_` benchmark; asv can append the samples of later starts to it."""
    return {"samples": list(samples), "number": 1}
