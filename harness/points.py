"""What asv has stored of one commit, by arm and cell."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness import estimate
from harness.asv_names import Parameters, Stored
from harness.cells import Cell, grid
from harness.energy import METRICS
from harness.estimate import Estimate
from harness.verdict import Verdict
from harness.vocabulary import REPORTED_ARMS, Arm, CacheMode, Offset, Scenario

RELOAD = "reload.Reload.track_"
FIX_COST = "reload.FixCost.track_fix_cost"
NOISE = "reload.FixCost.track_noise"
START = "reload.Start.track_ttft"
ENERGY = "reload.Energy.track_"
ENERGY_FIX_COST = "reload.EnergyFixCost.track_energy_fix_cost"
ENERGY_ERROR = "reload.EnergyFixCost.track_error"
NOTHING = Stored(None, ())

Benchmarks = Mapping[str, Mapping[Parameters, Stored]]
"""By benchmark name, then by its parameters."""


@dataclass(frozen=True)
class Point:
    """One arm in one cell."""

    arm: Arm
    cell: Cell
    verdict: Verdict | None
    """None where it failed or was not run."""
    wrong_tokens: float | None
    logprob_drift: float | None
    ttft: Estimate | None
    """Seconds; None where the output is wrong, or it failed or was not run."""
    recomputed_tokens: float | None
    reload_bytes: float | None
    energy: Estimate | None = None
    """Joules of a request; None without a meter, or where the output is wrong."""


def in_mode(stored: Benchmarks, mode: CacheMode) -> Benchmarks:
    """What is stored of one cache mode, under the names of `reload`."""
    module = {CacheMode.ALL: "reload.", CacheMode.ALIGN: "align."}[mode]
    return {
        f"reload.{name.removeprefix(module)}": kept
        for name, kept in stored.items()
        if name.startswith(module)
    }


def of(stored: Benchmarks) -> dict[tuple[Arm, Cell], Point]:
    """Every arm in every cell of which anything is stored, cells in the order of the sweep."""
    known = {key for metric in _METRICS for key in stored.get(RELOAD + metric, {})}
    cells = grid({cell_of(key).chunks for key in known})
    return {
        (arm, cell): _point(stored, arm, cell)
        for arm in REPORTED_ARMS
        for cell in cells
        if parameters(cell, arm) in known
        and any(kept(stored, m, arm, cell).value is not None for m in _METRICS)
    }


_METRICS = ("wrong_output", "wrong_tokens", "logprob_drift", "recomputed_tokens", "reload_bytes")


def parameters(cell: Cell, arm: Arm | None = None) -> Parameters:
    """The parameters under which asv keeps a cell, or an arm of it."""
    place = (cell.scenario.value, cell.offset.value, cell.chunks)
    return place if arm is None else (arm.value, *place)


def cell_of(key: Parameters) -> Cell:
    """The cell of parameters with or without an arm before them."""
    scenario, offset, chunks = key[-3:]
    return Cell(Scenario(str(scenario)), int(str(chunks)), Offset(str(offset)))


def starts_of(stored: Benchmarks, cell: Cell) -> tuple[float, ...]:
    """The median TTFT of `reload/aligned` in each start; empty where one start has none."""
    drawn = stored.get(START, {}).get(parameters(cell), NOTHING).samples
    return drawn if min(drawn, default=0) > 0 else ()


def verdict(wrong: Stored) -> Verdict | None:
    """The verdict that a stored `wrong_output` means: wrong in one start is wrong."""
    if any(one > 0 for one in wrong.samples):
        return Verdict.WRONG
    if wrong.value is None:
        return None
    if any(map(math.isnan, (wrong.value, *wrong.samples))):
        return Verdict.CANNOT_TELL
    return Verdict.WRONG if wrong.value else Verdict.EQUAL


def _point(stored: Benchmarks, arm: Arm, cell: Cell) -> Point:
    def number(metric: str) -> float | None:
        value = kept(stored, metric, arm, cell).value
        return None if value is None or math.isnan(value) else value

    times = kept(stored, "ttft", arm, cell).samples
    outcome = verdict(kept(stored, "wrong_output", arm, cell))
    return Point(
        arm=arm,
        cell=cell,
        verdict=outcome,
        wrong_tokens=number("wrong_tokens"),
        logprob_drift=number("logprob_drift"),
        ttft=estimate.median(times) if times and outcome is not Verdict.WRONG else None,
        recomputed_tokens=number("recomputed_tokens"),
        reload_bytes=number("reload_bytes"),
        energy=energy_of(stored, arm, cell).get("energy"),
    )


def kept(stored: Benchmarks, metric: str, arm: Arm, cell: Cell) -> Stored:
    """One metric of an arm in a cell."""
    return stored.get(RELOAD + metric, {}).get(parameters(cell, arm), NOTHING)


def energy_of(stored: Benchmarks, arm: Arm, cell: Cell) -> dict[str, Estimate]:
    """What is stored of `energy.METRICS`, by their names, each over its windows."""
    drawn = {
        metric: stored.get(ENERGY + metric, {}).get(parameters(cell, arm), NOTHING).samples
        for metric in METRICS
    }
    return {metric: estimate.median(one) for metric, one in drawn.items() if one}


def fix_costs_of(stored: Benchmarks, cell: Cell) -> tuple[float, ...]:
    """The paired ratios of TTFT in a cell; empty where there are none."""
    return stored.get(FIX_COST, {}).get(parameters(cell), NOTHING).samples


def noise_of(stored: Benchmarks, cell: Cell) -> tuple[float, ...]:
    """The same of two identical arms."""
    return stored.get(NOISE, {}).get(parameters(cell), NOTHING).samples


def energy_fix_costs_of(stored: Benchmarks, cell: Cell) -> tuple[float, ...]:
    """The paired ratios of energy in a cell; empty where there are none."""
    return stored.get(ENERGY_FIX_COST, {}).get(parameters(cell), NOTHING).samples


def energy_error_of(stored: Benchmarks, cell: Cell) -> float | None:
    """How far off the energy of an arm in a cell may be, as a share of it."""
    share = stored.get(ENERGY_ERROR, {}).get(parameters(cell), NOTHING).value
    return None if share is None or math.isnan(share) else share
