"""Tables for people, and the same as JSON for programs."""

import sys
from collections.abc import Iterable

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import numbers, units, verdict
from harness.cells import Cell
from harness.comparison import Comparison, Side
from harness.record import CellResult, Provenance, Record
from harness.verdict import Verdict
from harness.vocabulary import Arm, Scenario

_STYLES = {Verdict.EQUAL: "green", Verdict.WRONG: "bold red", Verdict.CANNOT_TELL: "yellow"}
_PLAIN_WIDTH = 110


def console() -> Console:
    """Where reports go: stdout, wide enough for the tables when it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)


def as_json(value: object) -> str:
    """A dataclass of results as JSON; an infinite bound becomes null."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def comparison_tables(comparison: Comparison) -> list[Table]:
    """A table for each scenario: what the code of either commit did, one row a prompt length."""
    base, fix = comparison.base, comparison.fix
    tables = []
    for scenario in _scenarios(row.cell for row in comparison.rows):
        table = _table(scenario)
        table.add_column(f"output\n{base}")
        table.add_column(f"output\n{fix}")
        for title in (f"recomputed\n{base}", fix, f"reloaded\n{base}", fix, f"TTFT\n{base}", fix):
            table.add_column(title if "\n" in title else f"\n{title}", justify="right")
        table.add_column("fix cost\n(95 % interval)", justify="right")
        for row in comparison.rows:
            if row.cell.scenario is scenario:
                table.add_row(
                    _prompt(row.cell),
                    _verdict(row.base.verdict),
                    _verdict(row.fix.verdict),
                    str(row.base.recomputed_tokens),
                    str(row.fix.recomputed_tokens),
                    units.size(row.base.reload_bytes),
                    units.size(row.fix.reload_bytes),
                    _ttft(row.base),
                    _ttft(row.fix),
                    units.times(row.fix_cost),
                    end_section=_ends_section(row.cell),
                )
        tables.append(table)
    return tables


def record_tables(record: Record) -> list[Table]:
    """A table for each scenario: the two alignments beside the shipped one and the cold arm."""
    tables = []
    for scenario in _scenarios(record.cells):
        table = _table(scenario)
        table.add_column("output\nshipped")
        for title in (
            "recomputed\naligned",
            "\nunaligned",
            "reloaded\naligned",
            "\nunaligned",
            "TTFT\ncold",
            "\naligned",
            "\nunaligned",
            "fix cost\n(95 % interval)",
        ):
            table.add_column(title, justify="right")
        for cell, result in record.cells.items():
            if cell.scenario is scenario:
                table.add_row(
                    *_record_row(result, record.header.provenance),
                    end_section=_ends_section(cell),
                )
        tables.append(table)
    return tables


def _record_row(result: CellResult, origin: Provenance) -> list[str | Text]:
    both = (Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED)

    def figure(arm: Arm, metric: str) -> float:
        return numbers.median(numbers.values(result, arm, metric)).value

    def ttft(arm: Arm) -> str:
        if verdict.judge(result, arm, origin) is Verdict.WRONG:
            return "wrong"
        return units.seconds(figure(arm, "ttft"))

    return [
        _prompt(result.cell),
        _verdict(verdict.judge(result, Arm.RELOAD_SHIPPED, origin)),
        *(f"{figure(arm, 'recomputed_tokens'):.0f}" for arm in both),
        *(units.size(figure(arm, "reload_bytes")) for arm in both),
        *(ttft(arm) for arm in (Arm.COLD, *both)),
        units.times(numbers.fix_cost(result)),
    ]


def _scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    return list(dict.fromkeys(cell.scenario for cell in cells))


def _table(scenario: Scenario) -> Table:
    table = Table(title=f"Scenario {scenario}", title_justify="left")
    table.add_column("prompt\n(chunks)", no_wrap=True)
    return table


def _prompt(cell: Cell) -> str:
    return str(cell.chunks) if cell.offset == "0" else f"{cell.chunks} {cell.offset}"


def _verdict(outcome: Verdict) -> Text:
    return Text(outcome.value, style=_STYLES[outcome])


def _ttft(side: Side) -> str:
    return "wrong" if side.ttft is None else units.seconds(side.ttft.value)


def _ends_section(cell: Cell) -> bool:
    return cell.offset == "+half"
