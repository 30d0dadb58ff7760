"""The answer on a pull request: what changed, correctness before speed, and an exit code."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from harness import comparison, conclusion, outcomes
from harness.cells import Cell
from harness.comparison import Comparison, NothingStoredError
from harness.errors import FixcostError
from harness.outcomes import CellOutcome, Outcome
from harness.report import as_json as encode
from harness.vocabulary import CacheMode
from harness.wording import listed, percent, times

FINE, REGRESSION, NOTHING_MEASURED = 0, 1, 3
_ABOUT_OUTPUT = (Outcome.NEWLY_WRONG, Outcome.WRONG, Outcome.NEWLY_RIGHT)
_LOSSES = (Outcome.NEWLY_WRONG, Outcome.FAILED_HERE)
_BAD = (Outcome.NEWLY_WRONG, Outcome.WRONG)


@dataclass(frozen=True)
class Answer:
    """Two commits, cell by cell."""

    base: str
    fix: str
    outcomes: list[CellOutcome]
    comparison: Comparison | None
    """None where no cell has figures of both."""
    reason: str
    """Why there is none, or ""."""
    beyond_budget: list[CellOutcome]
    budget: float | None

    @property
    def exit_code(self) -> int:
        """0 fine, 1 newly wrong or failing, or beyond the budget, 3 nothing measured on both."""
        if self.beyond_budget or any(one.outcome in _LOSSES for one in self.outcomes):
            return REGRESSION
        silent = (Outcome.NOT_MEASURED, Outcome.INFRASTRUCTURE)
        return NOTHING_MEASURED if all(o.outcome in silent for o in self.outcomes) else FINE


def parse_budget(text: str | None) -> float | None:
    """The ratio in "ttft=1.5".

    Raises:
        FixcostError: it is not of that form.
    """
    if text is None:
        return None
    name, _, number = text.partition("=")
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if name != "ttft" or not 1 <= limit < math.inf:
        raise FixcostError(f"A budget is ttft= and a ratio of 1 or more, as ttft=1.5, not {text}.")
    return limit


def collect(
    conf_path: Path,
    base: str,
    fix: str,
    budget: float | None = None,
    mode: CacheMode = CacheMode.ALL,
) -> Answer:
    """Compare two commits of the subject on this machine, both measured in one cache mode.

    Raises:
        FixcostError: a name is unknown, both are one commit, they were measured with different
            models, or what is stored is damaged.
    """
    found = comparison.outcomes(conf_path, base, fix, mode)
    compared, reason = None, ""
    try:
        compared = comparison.load(conf_path, base, fix, mode)
    except NothingStoredError as error:
        reason = str(error)
    return Answer(base, fix, found, compared, reason, _beyond(found, budget), budget)


def lead(answer: Answer) -> str:
    """The first sentence: the gravest thing that is to be said."""
    by_word = outcomes.by_word(answer.outcomes)
    total = len(answer.outcomes)
    if not total or answer.exit_code == NOTHING_MEASURED:
        return (
            f"Nothing was measured on both {answer.base} and {answer.fix}. {answer.reason}".strip()
        )
    faulty = answer.comparison.faulty if answer.comparison else []
    sentences = [mark] if (mark := conclusion.mark_of(faulty)) else []
    sentences += _about_output(answer, by_word, total)
    if answer.beyond_budget:
        cells = listed([one.cell.label for one in answer.beyond_budget])
        sentences.append(
            f"BEYOND THE BUDGET of {answer.budget:g}x in time to the first token: {cells}."
        )
    return " ".join(sentences)


def table(answer: Answer) -> Table:
    """Every word that was used, with its cells."""
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("what", "cells", "which"):
        shown.add_column(heading, justify="right" if heading == "cells" else "left")
    for word, cells in outcomes.by_word(answer.outcomes).items():
        shown.add_row(word.value, str(len(cells)), _named(cells))
    return shown


def markdown(answer: Answer) -> str:
    """The same for a comment on a pull request."""
    lines = [
        f"### fixcost: `{answer.base}` against `{answer.fix}`",
        "",
        f"**{lead(answer)}**",
        "",
        "| what | cells | which |",
        "|---|---:|---|",
    ]
    for word, cells in outcomes.by_word(answer.outcomes).items():
        shown = f"**{word.value}**" if word in _ABOUT_OUTPUT else word.value
        lines.append(f"| {shown} | {len(cells)} | {_named(cells)} |")
    if answer.comparison is not None:
        lines += ["", conclusion.of_comparison(answer.comparison), "", *_details(answer)]
    return "\n".join(lines)


def as_json(answer: Answer) -> str:
    """All of it, with the exit code and the comparison's own figures."""
    compared = answer.comparison
    return encode(
        {
            "base": answer.base,
            "fix": answer.fix,
            "exit_code": answer.exit_code,
            "lead": lead(answer),
            "outcomes": answer.outcomes,
            "beyond_budget": [one.cell for one in answer.beyond_budget],
            "rows": compared.rows if compared else [],
            "one_sided": compared.one_sided if compared else [],
            "faulty": compared.faulty if compared else [],
            "between": compared.between if compared else None,
        }
    )


def _about_output(
    answer: Answer, by_word: Mapping[Outcome, Sequence[Cell]], total: int
) -> Iterator[str]:
    new, old = (by_word.get(word, []) for word in _BAD)
    if new:
        share = f"{len(new)} of {total} cells"
        yield f"OUTPUT OF {answer.fix} IS NEWLY WRONG in {share}: {_named(new)}."
    if old:
        yield f"Output of {answer.fix} is wrong in {len(old)} of {total} cells: {_named(old)}."
    if not new and not old:
        yield f"No output of {answer.fix} was found wrong."
    if Outcome.NEWLY_RIGHT in by_word:
        yield f"It is newly right in {len(by_word[Outcome.NEWLY_RIGHT])} of {total} cells."
    others = {
        word: len(cells)
        for word, cells in by_word.items()
        if word not in (*_ABOUT_OUTPUT, Outcome.NONE_SEEN, Outcome.TOO_FEW)
    }
    if others:
        yield f"{listed([f'{n} {word}' for word, n in others.items()]).capitalize()}."


def _details(answer: Answer) -> Iterator[str]:
    yield "<details><summary>Every cell</summary>"
    yield ""
    yield "| prompt | what | TTFT | would have been seen |"
    yield "|---|---|---|---|"
    for one in answer.outcomes:
        cost = times(one.cost) if one.cost and one.cost.low else ""
        seen = percent(one.detectable) if one.detectable is not None else ""
        yield f"| {one.cell.label} | {one.outcome.value} | {cost} | {seen} |"
    yield ""
    yield "</details>"


def _beyond(found: Sequence[CellOutcome], budget: float | None) -> list[CellOutcome]:
    """Cells whose whole interval lies beyond: what noise may have done is no regression."""
    if budget is None:
        return []
    return [one for one in found if one.cost is not None and one.cost.low > budget]


def _named(cells: Sequence[Cell]) -> str:
    """At most eight cells by name."""
    names = [cell.label for cell in cells[:8]]
    rest = len(cells) - len(names)
    return "; ".join([*names, f"and {rest} more"] if rest else names)
