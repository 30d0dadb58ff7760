"""The history across releases as tables."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from harness.release_history import Line
from harness.verdict import Verdict
from harness.vocabulary import CacheMode, Scenario
from harness.wording import change

LEGEND = (
    "Shipped and unaligned: tokens restored from host memory at the shortest exact boundary, by "
    "the release as it is and with its hit window not rounded down. Fix cost: over all exact "
    "boundaries, TTFT aligned over unaligned. Blind: nothing is stored that the unaligned arm "
    "could restore wrongly."
)
NOT_THERE = "no such mode"
_WORDS = {Verdict.EQUAL: "", Verdict.WRONG: " WRONG", Verdict.CANNOT_TELL: " ?", None: " failed"}


def of(machine: str, lines: Sequence[Line]) -> list[Table]:
    """A table for each cache mode, a row for each release."""
    tables = []
    for mode in CacheMode:
        table = Table(title=f"{machine}, cache mode {mode}", title_justify="left", box=None)
        table.add_column("\nrelease", no_wrap=True)
        for scenario in Scenario:
            table.add_column(f"{scenario}\nshipped", no_wrap=True)
            table.add_column("\nunaligned", no_wrap=True)
            table.add_column("\nfix cost", no_wrap=True)
        for release, said in rows(lines, mode).items():
            table.add_row(release, *map(_coloured, said))
        tables.append(table)
    return tables


def rows(lines: Sequence[Line], mode: CacheMode) -> dict[str, list[str]]:
    """By release: three words for each scenario, see `words`."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.mode is mode:
            found.setdefault(line.release, []).extend(words(line))
    return found


def words(line: Line) -> tuple[str, str, str]:
    """What a line does at its shortest boundary, shipped and unaligned, and the fix cost."""
    if not line.boundaries:
        return (NOT_THERE, "", "")
    first = min(line.boundaries, key=lambda one: one.chunks)
    return (
        f"{first.shipped}{_WORDS[first.shipped_output]}",
        f"{first.unaligned}{_WORDS[first.unaligned_output]}",
        "blind" if line.blind else change(line.fix_cost) if line.fix_cost else "",
    )


def _coloured(text: str) -> Text:
    style = "bold red" if "WRONG" in text else "dim" if text in ("blind", NOT_THERE) else ""
    return Text(text, style=style)
