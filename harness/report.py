"""Tables for people, and the same as JSON for programs."""

import sys
from collections.abc import Iterable

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import estimate, numbers, trust, verdict, wording
from harness.axes import Point
from harness.cells import Cell
from harness.comparison import Comparison, Side
from harness.estimate import Estimate
from harness.record import CellResult, Oracle, Record
from harness.verdict import Verdict
from harness.vocabulary import Arm, Offset, Scenario

_STYLES = {Verdict.EQUAL: "green", Verdict.WRONG: "bold red", Verdict.CANNOT_TELL: "yellow"}
_PLAIN_WIDTH = 120
_NAME_WIDTH = 12


def console() -> Console:
    """Where reports go: stdout, wide enough for the tables when it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)


def as_json(value: object) -> str:
    """A dataclass of results as JSON; an infinite bound becomes null."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def record_as_json(record: Record) -> str:
    """A record as JSON: what stands against it first, then each cell with its figures."""
    cells = [
        {
            "fix_cost": estimate.ratio(numbers.fix_costs(result)),
            "noise": estimate.ratio(numbers.noise(result)),
            "detectable": estimate.detectable(numbers.noise(result)),
            "result": result,
        }
        for result in record.cells.values()
    ]
    return as_json(
        {
            "faults": trust.faults(record),
            "advice": trust.advice(record),
            "instrument": trust.instrument(record.cells.values()) if cells else None,
            "header": record.header,
            "cells": cells,
        }
    )


def comparison_tables(comparison: Comparison) -> list[Table]:
    """A table for each scenario: what the code of either commit did, one row a prompt length."""
    base, fix = shortened(comparison.base), shortened(comparison.fix)
    tables = []
    for scenario in _scenarios(row.cell for row in comparison.rows):
        table = _table(scenario)
        table.add_column(f"output\n\n{base}", no_wrap=True)
        table.add_column(f"\n\n{fix}", no_wrap=True)
        for figure in ("recomputed\ntokens", "reloaded\nKiB", "TTFT\nms"):
            table.add_column(f"{figure}\n{base}", justify="right", no_wrap=True)
            table.add_column(f"\n\n{fix}", justify="right", no_wrap=True)
        _add_fix_cost(table)
        for row in comparison.rows:
            if row.cell.scenario is scenario:
                table.add_row(
                    _prompt(row.cell),
                    _verdict(row.base.verdict),
                    _verdict(row.fix.verdict),
                    str(row.base.recomputed_tokens),
                    str(row.fix.recomputed_tokens),
                    _kib(row.base.reload_bytes),
                    _kib(row.fix.reload_bytes),
                    _ttft(row.base),
                    _ttft(row.fix),
                    *_fix_cost(row.fix_cost, row.detectable),
                    end_section=ends_section(row.cell),
                )
        tables.append(table)
    return tables


def record_tables(record: Record) -> list[Table]:
    """A table for each scenario: the two alignments beside the shipped one and the cold arm."""
    tables = []
    for scenario in _scenarios(record.cells):
        table = _table(scenario)
        table.add_column("output\n\nshipped", no_wrap=True)
        for figure in ("recomputed\ntokens", "reloaded\nKiB", "TTFT\nms"):
            table.add_column(f"{figure}\naligned", justify="right", no_wrap=True)
            table.add_column("\n\nunaligned", justify="right", no_wrap=True)
        table.add_column("TTFT\nms\ncold", justify="right", no_wrap=True)
        _add_fix_cost(table)
        for cell, result in record.cells.items():
            if cell.scenario is scenario:
                table.add_row(
                    *_record_row(result, verdict.oracle_of(record)),
                    end_section=ends_section(cell),
                )
        tables.append(table)
    return tables


def axis_table(axis: str, points: Iterable[Point]) -> Table:
    """One row a value: what happens at exact boundaries, and how well it can be seen."""
    table = Table(title=f"Axis {axis}, at exact boundaries", title_justify="left")
    table.box, table.padding = box.SIMPLE_HEAD, (0, 1, 0, 0)
    table.add_column("value")
    table.add_column("chunk\ntokens", justify="right")
    for arm in ("shipped", "unaligned"):
        table.add_column(f"output\n{arm}")
        table.add_column(f"tokens\nrecomputed\n{arm}", justify="right")
    table.add_column("fix\ncost", justify="right")
    table.add_column("95 %\ninterval")
    table.add_column("noise\nfloor", justify="right")
    table.add_column("weakest\ncorruption", justify="right")
    for point in points:
        if point.outputs is None or point.recomputed_tokens is None or point.fix_cost is None:
            table.add_row(point.value, "", Text(f"failed: {point.error}", style="red"))
            continue
        assert point.oracle is not None
        arms = (Arm.RELOAD_SHIPPED, Arm.RELOAD_UNALIGNED)
        both = [(_verdict(point.outputs[a]), f"{point.recomputed_tokens[a]:.0f}") for a in arms]
        table.add_row(
            point.value,
            str(point.chunk),
            *both[0],
            *both[1],
            wording.change(point.fix_cost),
            wording.interval(point.fix_cost),
            f"{point.oracle.floor:.1e}",
            f"{point.oracle.weakest:.1e}",
        )
    return table


def _record_row(result: CellResult, oracle: Oracle) -> list[str | Text]:
    both = (Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED)

    def figure(arm: Arm, metric: str) -> float:
        return estimate.median(numbers.values(result, arm, metric)).value

    def ttft(arm: Arm) -> str:
        if verdict.judge(result, arm, oracle) is Verdict.WRONG:
            return "wrong"
        return _ms(figure(arm, "ttft"))

    return [
        _prompt(result.cell),
        _verdict(verdict.judge(result, Arm.RELOAD_SHIPPED, oracle)),
        *(f"{figure(arm, 'recomputed_tokens'):.0f}" for arm in both),
        *(_kib(figure(arm, "reload_bytes")) for arm in both),
        *(ttft(arm) for arm in (*both, Arm.COLD)),
        *_fix_cost(
            estimate.ratio(numbers.fix_costs(result)),
            estimate.detectable(numbers.noise(result)),
        ),
    ]


def _scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    return list(dict.fromkeys(cell.scenario for cell in cells))


def _table(scenario: Scenario) -> Table:
    table = Table(
        title=f"Scenario {scenario}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("prompt\nchunks", no_wrap=True)
    return table


def _add_fix_cost(table: Table) -> None:
    table.add_column("fix\ncost\n", justify="right", no_wrap=True)
    table.add_column("95 %\ninterval\n", no_wrap=True)
    table.add_column("detect-\nable\n", justify="right", no_wrap=True)


def _fix_cost(cost: Estimate, detectable: float) -> tuple[str, str, str]:
    return wording.change(cost), wording.interval(cost), wording.percent(detectable)


def _kib(size: float) -> str:
    return f"{size / 1024:.0f}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def shortened(name: str) -> str:
    """A name that fits over a column."""
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."


def _prompt(cell: Cell) -> str:
    return str(cell.chunks) if cell.offset is Offset.EXACT else f"{cell.chunks} {cell.offset}"


def _verdict(outcome: Verdict) -> Text:
    return Text(outcome.value, style=_STYLES[outcome])


def _ttft(side: Side) -> str:
    return side.verdict.value if side.ttft is None else _ms(side.ttft.value)


def ends_section(cell: Cell) -> bool:
    """Whether a line follows below this cell."""
    return cell.offset is Offset.HALF_ABOVE
