"""The history across releases as tables."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from harness.release_history import Boundary, Line
from harness.verdict import Verdict
from harness.vocabulary import CacheMode, Scenario
from harness.wording import change

LEGEND = (
    "Tokens restored from host memory at the shortest exact boundary, by the release as it is and "
    "with the hit window unaligned; fix cost over all exact boundaries, aligned over unaligned; "
    "blind: nothing is stored that the unaligned arm could restore wrongly."
)
_WORDS = {Verdict.EQUAL: "", Verdict.WRONG: " WRONG", Verdict.CANNOT_TELL: " ?", None: " failed"}


def of(machine: str, lines: Sequence[Line]) -> Table:
    """A row for each release, three columns for each mode and scenario."""
    table = Table("release", title=f"Releases on {machine}", title_justify="left", box=None)
    for mode in CacheMode:
        for scenario in Scenario:
            head = f"{mode}\n{scenario}\n"
            table.add_column(f"{head}shipped", no_wrap=True)
            table.add_column("\n\nunaligned", no_wrap=True)
            table.add_column("\n\nfix cost", no_wrap=True)
    for release in dict.fromkeys(line.release for line in lines):
        cells: list[Text] = []
        for line in lines:
            if line.release == release:
                cells += map(_coloured, words(line))
        table.add_row(release, *cells)
    return table


def words(line: Line) -> tuple[str, str, str]:
    """What is said of a line at its shortest boundary: shipped, unaligned, fix cost."""
    if not line.boundaries:
        return ("not there", "", "")
    first = min(line.boundaries, key=lambda one: one.chunks)
    cost = "blind" if line.blind else change(line.fix_cost) if line.fix_cost else ""
    return (*_both(first), cost)


def _both(at: Boundary) -> tuple[str, str]:
    return (
        f"{at.shipped}{_WORDS[at.shipped_output]}",
        f"{at.unaligned}{_WORDS[at.unaligned_output]}",
    )


def _coloured(text: str) -> Text:
    style = "bold red" if "WRONG" in text else "dim" if text in ("blind", "not there") else ""
    return Text(text, style=style)
