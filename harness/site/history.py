"""What became of each metric from commit to commit, and where it changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness import asv_names, estimate, points, starts
from harness.estimate import Estimate
from harness.points import Benchmarks
from harness.verdict import Verdict
from harness.vocabulary import Arm


@dataclass(frozen=True)
class Series:
    """One metric over commits, the oldest first."""

    key: str
    title: str
    unit: str
    labels: list[str]
    """Of the commits."""
    values: list[Estimate | None]
    """None where a commit has none."""
    changes: list[int]
    """Commits at which a new level begins."""

    @property
    def changed_at(self) -> list[str]:
        """The labels of those."""
        return [self.labels[x] for x in self.changes]


def series(commits: Mapping[str, Benchmarks]) -> list[Series]:
    """The metrics of the history page that any commit has, from commits by their labels."""
    metrics = {
        ("wrong", "cells with wrong output", "cells"): _wrong_cells,
        ("fix-cost", "fix cost at exact boundaries, aligned over unaligned", "ratio"): _fix_cost,
        ("ttft", "time to the first token, aligned, all cells", "ms"): _ttft,
        ("tokens", "recomputed tokens at exact boundaries, as shipped", "tokens"): _tokens,
        ("energy", "fix cost in energy at exact boundaries", "ratio"): _energy,
        ("bytes", "reloaded at exact boundaries, as shipped", "KiB"): _kib,
    }
    found = []
    for (key, title, unit), metric in metrics.items():
        values = [metric(stored) for stored in commits.values()]
        if not any(values):
            continue
        found.append(Series(key, title, unit, list(commits), values, changes(values)))
    return found


def changes(values: Sequence[Estimate | None]) -> list[int]:
    """Where a new level begins: asv's own step detection, kept where the intervals part as well.

    Few commits make steps out of noise; two neighbours whose intervals overlap are no change.
    """
    begins = asv_names.steps([None if one is None else one.value for one in values])
    return [x for x in begins if _parted(values, x)]


def _parted(values: Sequence[Estimate | None], x: int) -> bool:
    before = next((one for one in reversed(values[:x]) if one is not None), None)
    after = values[x]
    return bool(before and after and (before.high < after.low or after.high < before.low))


def _wrong_cells(stored: Benchmarks) -> Estimate | None:
    shipped = [one for (arm, _), one in points.of(stored).items() if arm is Arm.RELOAD_SHIPPED]
    if not shipped:
        return None
    return estimate.exactly(sum(one.verdict is Verdict.WRONG for one in shipped))


def _fix_cost(stored: Benchmarks) -> Estimate | None:
    cells = [points.cell_of(key) for key in stored.get(points.FIX_COST, {})]
    drawn = [points.fix_costs_of(stored, cell) for cell in cells if cell.is_exact_boundary]
    return estimate.pooled(drawn) if any(drawn) else None


def _energy(stored: Benchmarks) -> Estimate | None:
    keys = stored.get(points.ENERGY_FIX_COST, {})
    cells = [cell for key in keys if (cell := points.cell_of(key)).is_exact_boundary]
    drawn = [one for cell in cells if (one := points.energy_fix_costs_of(stored, cell))]
    return estimate.pooled(drawn) if drawn else None


def _ttft(stored: Benchmarks) -> Estimate | None:
    """The geometric mean over cells; the interval is that of the starts."""
    cells = [points.starts_of(stored, points.cell_of(key)) for key in stored.get(points.START, {})]
    cells = [drawn for drawn in cells if drawn]
    if len({len(drawn) for drawn in cells}) != 1:
        return None
    return estimate.ratio([1e3 * one for one in starts.pooled(cells)])


def _tokens(stored: Benchmarks) -> Estimate | None:
    return _mean(stored, "recomputed_tokens", 1.0)


def _kib(stored: Benchmarks) -> Estimate | None:
    return _mean(stored, "reload_bytes", 1 / 1024)


def _mean(stored: Benchmarks, metric: str, scale: float) -> Estimate | None:
    values = [
        value * scale
        for (arm, cell), one in points.of(stored).items()
        if arm is Arm.RELOAD_SHIPPED and cell.is_exact_boundary
        if (value := getattr(one, metric)) is not None
    ]
    return estimate.exact_mean(values)
