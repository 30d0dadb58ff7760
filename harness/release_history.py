"""What each measured release does, in every cache mode and scenario."""

from dataclasses import dataclass
from pathlib import Path

from harness import asv_names, estimate, points, release_commits, runs, subject
from harness.cells import Cell
from harness.estimate import Estimate
from harness.points import Benchmarks, Point
from harness.runs import Run
from harness.verdict import Verdict
from harness.vocabulary import Arm, CacheMode, Scenario


@dataclass(frozen=True)
class Boundary:
    """One exact boundary: what two arms restored there, and whether that was right."""

    chunks: int
    shipped: int
    """Tokens restored by the release as it is."""
    shipped_output: Verdict | None
    unaligned: int
    """Tokens restored when the hit window is not rounded down."""
    unaligned_output: Verdict | None


@dataclass(frozen=True)
class Line:
    """One release in one cache mode and one scenario."""

    release: str
    mode: CacheMode
    scenario: Scenario
    boundaries: list[Boundary]
    """Empty where the release does not have the mode."""
    blind: bool
    """Whether the known corruption cannot show here."""
    wrong: list[str]
    """The cells in which the release's own output is wrong."""
    recomputed_tokens: Estimate | None
    """By the release as it is, mean over the exact boundaries."""
    reload_bytes: Estimate | None
    """The same."""
    ttft: Estimate | None
    """Seconds, the same, geometric mean; None where output is wrong at one of them."""
    fix_cost: Estimate | None
    """Aligned over unaligned, at the exact boundaries."""


def of_all(conf_path: Path) -> dict[str, list[Line]]:
    """The lines of each machine that has measured a release, the oldest release first.

    Raises:
        FixcostError: there is no subject, or what is stored is damaged.
    """
    found = {name: of_machine(conf_path, name) for name in asv_names.machines(conf_path)}
    return {name: lines for name, lines in found.items() if lines}


def of_machine(conf_path: Path, machine: str) -> list[Line]:
    """The lines of one machine: for each release every mode, for each mode every scenario."""
    repository = subject.current(conf_path).repository
    if not repository.exists():
        return []
    lines = []
    for release, commit in release_commits.all_of(repository).items():
        stored = asv_names.stored(conf_path, machine, commit)
        if not stored:
            continue
        for mode in CacheMode:
            run = runs.read(conf_path, machine, commit, mode)
            kept = points.in_mode(stored, mode)
            lines += [_line(release, mode, scenario, kept, run) for scenario in Scenario]
    return lines


def _line(
    release: str, mode: CacheMode, scenario: Scenario, stored: Benchmarks, run: Run | None
) -> Line:
    """`run` is None where the release does not have the mode."""
    found = points.of(stored) if run else {}
    cells = list(dict.fromkeys(cell for _, cell in found if cell.scenario is scenario))
    exact = [cell for cell in cells if cell.is_exact_boundary]
    shipped = [found[Arm.RELOAD_SHIPPED, cell] for cell in cells]
    at_exact = [one for one in shipped if one.cell.is_exact_boundary]
    return Line(
        release=release,
        mode=mode,
        scenario=scenario,
        boundaries=[_boundary(found, cell, run.header.chunk) for cell in exact] if run else [],
        blind=run is not None and scenario in run.blind_scenarios,
        wrong=[one.cell.label for one in shipped if one.verdict is Verdict.WRONG],
        recomputed_tokens=estimate.exact_mean(one.recomputed_tokens for one in at_exact),
        reload_bytes=estimate.exact_mean(one.reload_bytes for one in at_exact),
        ttft=_ttft(at_exact, stored),
        fix_cost=_fix_cost(exact, stored),
    )


def _boundary(found: dict[tuple[Arm, Cell], Point], cell: Cell, chunk: int) -> Boundary:
    shipped, unaligned = (found[arm, cell] for arm in (Arm.RELOAD_SHIPPED, Arm.RELOAD_UNALIGNED))

    def restored(point: Point) -> int:
        return cell.prompt_length(chunk) - round(point.recomputed_tokens or 0)

    return Boundary(
        chunks=cell.chunks,
        shipped=restored(shipped),
        shipped_output=shipped.verdict,
        unaligned=restored(unaligned),
        unaligned_output=unaligned.verdict,
    )


def _ttft(shipped: list[Point], stored: Benchmarks) -> Estimate | None:
    drawn = [points.kept(stored, "ttft", one.arm, one.cell).samples for one in shipped]
    if not drawn or not all(drawn):
        return None
    return estimate.pooled(drawn)


def _fix_cost(cells: list[Cell], stored: Benchmarks) -> Estimate | None:
    drawn = [points.fix_costs_of(stored, cell) for cell in cells]
    return estimate.pooled(drawn) if drawn and all(drawn) else None
