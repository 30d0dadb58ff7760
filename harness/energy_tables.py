"""Energy in words and tables, of a sweep and of two commits."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from harness import energy, estimate, report, verdict, wording
from harness.cells import Cell
from harness.comparison import Comparison, Side
from harness.energy import Figure
from harness.record import CellResult, Oracle, Record
from harness.verdict import Verdict
from harness.vocabulary import Arm

_UNITS = {"energy": "energy\nJ", "energy_above_idle": "above idle\nJ", "power": "power\nW"}
BELOW = "below"
"""What the meters resolve."""


def said_of_comparison(comparison: Comparison) -> str:
    """The sentence on energy under `fixcost compare`."""
    ratios = {row.cell: row.energy_fix_costs for row in comparison.rows}
    errors = [row.energy_error for row in comparison.rows if row.energy_error is not None]
    return _said(ratios, errors, comparison.no_energy)


def in_short(comparison: Comparison) -> str:
    """The shortest answer: the fix cost in energy at exact boundaries, or that there is none."""
    at = [row.energy_fix_costs for row in comparison.rows if row.cell.is_exact_boundary]
    at = [drawn for drawn in at if drawn]
    return wording.times(estimate.pooled(at)) if at else "n/a"


def said_of_record(record: Record) -> str:
    """The sentence on energy under `fixcost report`."""
    results = record.cells
    ratios = {cell: energy.fix_costs(result) for cell, result in results.items()}
    errors = [e for result in results.values() if (e := energy.error(result)) is not None]
    return _said(ratios, errors, energy.absence_in(record.header, results.values()))


def of_comparison(comparison: Comparison) -> list[Table]:
    """A table of what the code of either commit took; none without energy."""
    if not any(row.base.energy or row.fix.energy for row in comparison.rows):
        return []
    table = _table("Energy per request, of what either commit did")
    for metric in _UNITS.values():
        for name in (comparison.base, comparison.fix):
            table.add_column(f"{metric}\n{report.shortened(name)}", justify="right", no_wrap=True)
    _add_fix_cost(table)
    for row in comparison.rows:
        table.add_row(
            row.cell.label,
            *(_number(side, metric) for metric in _UNITS for side in (row.base, row.fix)),
            "" if row.energy_error is None else wording.percent(row.energy_error),
            *_fix_cost(row.energy_fix_costs),
            end_section=report.ends_section(row.cell),
        )
    return [table]


def of_record(record: Record) -> list[Table]:
    """A table of the two alignments and the cold arm, each figure with its error."""
    if not any(result.windows for result in record.cells.values()):
        return []
    table = _table("Energy per request")
    arms = (Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED, Arm.COLD)
    for metric in ("energy", "energy_above_idle"):
        for arm in arms:
            name = arm.value.rpartition("/")[2]
            table.add_column(f"{_UNITS[metric]}\n{name}", justify="right", no_wrap=True)
    _add_fix_cost(table)
    oracle = verdict.oracle_of(record)
    for cell, result in record.cells.items():
        share = energy.error(result)
        table.add_row(
            cell.label,
            *(_figure(result, a, m, oracle) for m in ("energy", "energy_above_idle") for a in arms),
            "" if share is None else wording.percent(share),
            *_fix_cost(energy.fix_costs(result)),
            end_section=report.ends_section(cell),
        )
    return [table]


def with_error(figure: Figure) -> str:
    """ "0.123 ± 0.004", or that it is below what the meters resolve."""
    if not figure.is_resolved:
        return BELOW
    return f"{figure.value:.3g} ± {figure.error:.1g}"


def _said(ratios: Mapping[Cell, Sequence[float]], errors: Sequence[float], reason: str) -> str:
    drawn = {cell: one for cell, one in ratios.items() if one}
    if not drawn:
        missing = "no figure is above what the meters resolve." if errors else reason
        return f"Energy is n/a: {missing}" if missing else ""
    at = [one for cell, one in drawn.items() if cell.is_exact_boundary]
    elsewhere = [one for cell, one in drawn.items() if not cell.is_exact_boundary]
    parts = [
        f"{wording.times(estimate.pooled(each))} {place}"
        for place, each in (("at exact boundaries", at), ("elsewhere", elsewhere))
        if each
    ]
    limit = wording.percent(max(errors)) if errors else "an unknown share"
    return (
        f"In energy per request the fix costs {wording.listed(parts)}, 95 % intervals over paired "
        f"windows; each energy is right to within {limit}."
    )


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("prompt", no_wrap=True)
    return table


def _add_fix_cost(table: Table) -> None:
    table.add_column("error\nup to\n", justify="right", no_wrap=True)
    table.add_column("fix\ncost\n", justify="right", no_wrap=True)
    table.add_column("95 %\ninterval\n", no_wrap=True)


def _fix_cost(ratios: Sequence[float]) -> tuple[str, str]:
    if not ratios:
        return "n/a", ""
    cost = estimate.ratio(ratios)
    return wording.change(cost), wording.interval(cost)


def _number(side: Side, metric: str) -> str:
    if side.verdict is Verdict.WRONG:
        return side.verdict.value
    found = side.energy.get(metric)
    return "n/a" if found is None else f"{found.value:.3g}"


def _figure(result: CellResult, arm: Arm, metric: str, oracle: Oracle) -> str:
    if verdict.judge(result, arm, oracle) is Verdict.WRONG:
        return "wrong"
    figures = energy.METRICS[metric](result, arm)
    return with_error(energy.mean(figures)) if figures else "n/a"
