"""Two commits side by side, from what asv has stored of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import asv_names, estimate, git, points, runs, starts, subject
from harness import outcomes as cell_outcomes
from harness.cells import Cell, grid
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.outcomes import CellOutcome
from harness.points import NOTHING, Benchmarks
from harness.starts import Between
from harness.verdict import Verdict
from harness.vocabulary import Arm, CacheMode, Scenario

_FAULTS = "reload.Run.track_faults"
_IDENTITY = "reload.Run.track_identity"


class NothingStoredError(FixcostError):
    """One of the two commits was not measured on this machine, or nothing on both."""


class IncomparableError(FixcostError):
    """The two commits were not measured with the same model on the same processor."""


@dataclass(frozen=True)
class Side:
    """What one commit's own code did with a cell: its arm `reload/shipped`."""

    verdict: Verdict
    ttft: Estimate | None
    """Seconds; None where the output is wrong."""
    recomputed_tokens: int
    reload_bytes: int
    control_caught: bool
    """Whether the known corruption was seen here, or there is none to see."""
    energy: dict[str, Estimate] = field(default_factory=dict)
    """Those of `energy.METRICS` that were measured, over their windows."""


@dataclass(frozen=True)
class Row:
    """One cell on both commits."""

    cell: Cell
    base: Side
    fix: Side
    fix_cost: Estimate
    """As measured in the run of the commit with the fix."""
    fix_costs: tuple[float, ...]
    """The ratios behind it, one a sample."""
    noise: tuple[float, ...]
    """The ratios of two identical arms in the same samples."""
    detectable: float
    """The smallest change that these would have shown (0.05 is 5 %)."""
    between: Between | None
    """TTFT of `reload/aligned`, start by start; None where it is wrong on either."""
    energy_fix_costs: tuple[float, ...] = ()
    """Energy of `reload/aligned` over that of `reload/unaligned`, one ratio a turn of windows."""
    energy_error: float | None = None
    """How far off an arm's energy may be, as a share of it."""


@dataclass(frozen=True)
class Comparison:
    """All cells that were measured on both commits, named as the user named them."""

    base: str
    fix: str
    rows: list[Row]
    one_sided: list[Cell]
    """Cells of which only one of the two has all figures: about them nothing is said."""
    faulty: list[str]
    """Those of the two whose run has faults (`trust.faults`), or was not checked for them."""
    between: Between | None
    """TTFT of `reload/aligned` over all cells, start by start; None where no cell has it."""
    no_energy: str = ""
    """Why the run of the commit with the fix has no energy, or not all of it."""
    blind: list[Scenario] = field(default_factory=list)
    """Scenarios in which nothing could show the known corruption on one of the two."""


def load(conf_path: Path, base: str, fix: str, mode: CacheMode = CacheMode.ALL) -> Comparison:
    """Compare two commits of the subject on this machine.

    Args:
        conf_path: asv.conf.json.
        base: a branch, tag or hash of the subject: the commit without the fix.
        fix: the commit with it.
        mode: the Mamba cache mode in which both were measured.

    Raises:
        FixcostError: a name is unknown, one of the two was not measured here, they were measured
            with different models or machines, or what is stored is damaged.
    """
    return of_machine(conf_path, asv_names.registered_machine(), base, fix, mode)


def of_machine(
    conf_path: Path, machine: str | None, base: str, fix: str, mode: CacheMode = CacheMode.ALL
) -> Comparison:
    """Compare two commits on a machine of asv's; raises like `load`."""
    repository = subject.current(conf_path).repository
    commits = [_commit(repository, name) for name in (base, fix)]
    if commits[0] == commits[1]:
        raise FixcostError(f"{base} and {fix} are the same commit: there is nothing to compare.")
    measured = []
    for name, commit in zip((base, fix), commits, strict=True):
        stored = _stored(conf_path, machine, commit, mode)
        cells = _measured_cells(stored)
        if not cells:
            raise NothingStoredError(
                f"Of {name} ({commit[:8]}) nothing complete is stored on this machine: "
                f"`asv run --record-samples` measures it, and says why if it cannot."
            )
        measured.append((stored, cells))
    (before, base_cells), (after, fix_cells) = measured
    shared = set(base_cells) & set(fix_cells)
    if not shared:
        raise NothingStoredError(f"{base} and {fix} have no measured cell in common.")
    if len({one for side in (before, after) for one in _drawn(side, _IDENTITY)}) != 1:
        raise IncomparableError(
            f"{base} and {fix} were not measured with the same profile and model on the same "
            f"processor: measure both anew (`fixcost bench`)."
        )
    rows = [_row(cell, before, after) for cell in base_cells if cell in shared]
    both = [runs.read(conf_path, machine, one, mode) if machine else None for one in commits]
    run, blind = both[1], [one for each in both if each for one in each.blind_scenarios]
    return Comparison(
        base=base,
        fix=fix,
        rows=rows,
        between=_between_all([row.cell for row in rows], before, after),
        one_sided=[cell for cell in dict.fromkeys(base_cells + fix_cells) if cell not in shared],
        faulty=[
            name
            for name, stored in ((base, before), (fix, after))
            if set(_drawn(stored, _FAULTS)) != {0.0}
        ],
        no_energy=(run.no_energy or run.header.no_energy) if run else "nothing is kept of its run.",
        blind=list(dict.fromkeys(blind)),
    )


def outcomes(
    conf_path: Path, base: str, fix: str, mode: CacheMode = CacheMode.ALL
) -> list[CellOutcome]:
    """What became of each cell between two commits on this machine, also where one failed.

    Raises:
        FixcostError: a name is unknown or what is stored is damaged.
    """
    repository, machine = subject.current(conf_path).repository, asv_names.registered_machine()
    found, killed = [], []
    for name in (base, fix):
        commit = _commit(repository, name)
        found.append(_stored(conf_path, machine, commit, mode))
        killed.append(machine is not None and runs.was_killed(conf_path, machine, commit, mode))
    return cell_outcomes.of(found[0], found[1], (killed[0], killed[1]))


def _stored(conf_path: Path, machine: str | None, commit: str, mode: CacheMode) -> Benchmarks:
    stored = asv_names.stored(conf_path, machine, commit) if machine else {}
    return points.in_mode(stored, mode)


def _commit(repository: Path, name: str) -> str:
    commit = git.commit_of(repository, name)
    if commit is None:
        raise FixcostError(f"{repository} has no branch, tag or commit {name}.")
    return commit


def _measured_cells(stored: Benchmarks) -> list[Cell]:
    """The cells of which all is stored that a row is made of."""
    known = [points.cell_of(key) for key in stored.get(points.FIX_COST, {})]
    complete = {cell for cell in known if _is_complete(stored, cell)}
    return [cell for cell in grid(cell.chunks for cell in complete) if cell in complete]


def _is_complete(stored: Benchmarks, cell: Cell) -> bool:
    """Whether nothing failed or is absent but the times of wrong output."""
    needed = [
        ("wrong_output", Arm.RELOAD_SHIPPED),
        ("wrong_output", Arm.RELOAD_UNALIGNED),
        ("recomputed_tokens", Arm.RELOAD_SHIPPED),
        ("reload_bytes", Arm.RELOAD_SHIPPED),
    ]
    if any(points.kept(stored, metric, arm, cell).value is None for metric, arm in needed):
        return False
    has_speed = bool(points.kept(stored, "ttft", Arm.RELOAD_SHIPPED, cell).samples)
    is_wrong = _verdict(stored, Arm.RELOAD_SHIPPED, cell) is Verdict.WRONG
    ratios = (points.fix_costs_of(stored, cell), points.noise_of(stored, cell))
    return (has_speed or is_wrong) and all(min(drawn, default=0) > 0 for drawn in ratios)


def _row(cell: Cell, before: Benchmarks, after: Benchmarks) -> Row:
    ratios = points.fix_costs_of(after, cell)
    noise = points.noise_of(after, cell)
    return Row(
        cell=cell,
        base=_side(cell, before),
        fix=_side(cell, after),
        fix_cost=estimate.ratio(ratios),
        fix_costs=ratios,
        noise=noise,
        detectable=estimate.detectable(noise),
        between=_between([points.starts_of(side, cell) for side in (before, after)]),
        energy_fix_costs=points.energy_fix_costs_of(after, cell),
        energy_error=points.energy_error_of(after, cell),
    )


def _drawn(stored: Benchmarks, name: str) -> tuple[float, ...]:
    """The figures of the run as a whole, one a start."""
    return stored.get(name, {}).get((), NOTHING).samples


def _between(sides: Sequence[Sequence[float]]) -> Between | None:
    before, after = sides
    return starts.compare(before, after) if before and after else None


def _between_all(cells: Sequence[Cell], *sides: Benchmarks) -> Between | None:
    """Over the cells that every start has measured."""
    drawn = {cell: [points.starts_of(side, cell) for side in sides] for cell in cells}
    most = [max((len(of[i]) for of in drawn.values()), default=0) for i in range(len(sides))]
    whole = [of for of in drawn.values() if [len(one) for one in of] == most]
    if not whole or 0 in most:
        return None
    return _between([starts.pooled([of[i] for of in whole]) for i in range(len(sides))])


def _side(cell: Cell, stored: Benchmarks) -> Side:
    times = points.kept(stored, "ttft", Arm.RELOAD_SHIPPED, cell).samples
    return Side(
        verdict=_verdict(stored, Arm.RELOAD_SHIPPED, cell),
        ttft=estimate.median(times) if times else None,
        recomputed_tokens=_number(stored, "recomputed_tokens", cell),
        reload_bytes=_number(stored, "reload_bytes", cell),
        control_caught=not cell.is_exact_boundary
        or _verdict(stored, Arm.RELOAD_UNALIGNED, cell) is not Verdict.EQUAL,
        energy=points.energy_of(stored, Arm.RELOAD_SHIPPED, cell),
    )


def _verdict(stored: Benchmarks, arm: Arm, cell: Cell) -> Verdict:
    # None never gets here, see `_is_complete`.
    return points.verdict(points.kept(stored, "wrong_output", arm, cell)) or Verdict.CANNOT_TELL


def _number(stored: Benchmarks, metric: str, cell: Cell) -> int:
    return round(points.kept(stored, metric, Arm.RELOAD_SHIPPED, cell).value or 0.0)
