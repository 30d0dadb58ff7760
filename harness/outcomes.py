"""What became of each cell from one commit to another, in words that never mix."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness import estimate, points, starts
from harness.cells import Cell, grid
from harness.estimate import Estimate
from harness.points import NOTHING, Benchmarks
from harness.starts import Change
from harness.verdict import Verdict
from harness.vocabulary import Arm

_WRONG = f"{points.RELOAD}wrong_output"
_TOKENS = f"{points.RELOAD}recomputed_tokens"


class Outcome(StrEnum):
    """What is said of a cell, the gravest first; of the commit's own code (`reload/shipped`)."""

    NEWLY_WRONG = "newly wrong output"
    WRONG = "wrong output"
    FAILED_HERE = "failed only here"
    FAILED_BEFORE = "failed only before"
    FAILED_BOTH = "failed on both"
    INFRASTRUCTURE = "infrastructure"
    CANNOT_TELL = "cannot tell right from wrong"
    NEWLY_RIGHT = "newly right output"
    SLOWER = "slower"
    FASTER = "faster"
    NONE_SEEN = "no change seen"
    TOO_FEW = "too few starts to tell the speed"
    NOT_MEASURED = "not measured"


_SPEEDS = {
    Change.SLOWER: Outcome.SLOWER,
    Change.FASTER: Outcome.FASTER,
    Change.NONE_SEEN: Outcome.NONE_SEEN,
    Change.TOO_FEW: Outcome.TOO_FEW,
}


@dataclass(frozen=True)
class CellOutcome:
    """One cell."""

    cell: Cell
    outcome: Outcome
    cost: Estimate | None
    """TTFT of the second commit over the first: where output is newly right, what the fix costs
    against the wrong answer, from pairs; else from starts; None where neither has a speed."""
    detectable: float | None
    """The smallest change of speed that would have been seen."""


def of(
    base: Benchmarks, fix: Benchmarks, killed: tuple[bool, bool] = (False, False)
) -> list[CellOutcome]:
    """Every cell that either commit knows of, in the order of the sweep.

    Args:
        base: what is stored of the first commit.
        fix: what is stored of the second.
        killed: whether the run of either was begun and never ended of itself.
    """
    keys = [key for side in (base, fix) for key in side.get(_WRONG, {})]
    cells = grid({points.cell_of(key).chunks for key in keys})
    return [_of_cell(cell, base, fix, killed) for cell in cells]


def by_word(outcomes: Sequence[CellOutcome]) -> Mapping[Outcome, list[Cell]]:
    """The cells of every word that was used, the gravest word first."""
    found = {word: [one.cell for one in outcomes if one.outcome is word] for word in Outcome}
    return {word: cells for word, cells in found.items() if cells}


def _of_cell(
    cell: Cell, base: Benchmarks, fix: Benchmarks, killed: tuple[bool, bool]
) -> CellOutcome:
    before, after = (
        _State.KILLED if gone and state in (_State.FAILED, _State.ABSENT) else state
        for gone, state in zip(killed, (_state(cell, base), _state(cell, fix)), strict=True)
    )
    word = _word(before, after)
    if word is Outcome.NEWLY_RIGHT:
        drawn = points.fix_costs_of(fix, cell)
        return CellOutcome(cell, word, estimate.ratio(drawn) if drawn else None, None)
    if word is not None:
        return CellOutcome(cell, word, None, None)
    drawn_starts = [points.starts_of(side, cell) for side in (base, fix)]
    if not all(drawn_starts):
        return CellOutcome(cell, Outcome.NOT_MEASURED, None, None)
    between = starts.compare(*drawn_starts)
    return CellOutcome(cell, _SPEEDS[between.change], between.ratio, between.detectable)


class _State(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"
    UNSURE = "unsure"
    FAILED = "failed"
    KILLED = "killed"
    ABSENT = "absent"


def _state(cell: Cell, stored: Benchmarks) -> _State:
    """What the commit's own code did; asv keeps a skipped cell as not a number in every metric."""
    place = points.parameters(cell, Arm.RELOAD_SHIPPED)
    kept = stored.get(_WRONG, {}).get(place)
    if kept is None:
        return _State.ABSENT
    outcome = points.verdict(kept)
    if outcome is None:
        return _State.FAILED
    tokens = stored.get(_TOKENS, {}).get(place, NOTHING).value
    if outcome is Verdict.CANNOT_TELL:
        return _State.ABSENT if tokens is None or math.isnan(tokens) else _State.UNSURE
    return _State.WRONG if outcome is Verdict.WRONG else _State.RIGHT


def _word(before: _State, after: _State) -> Outcome | None:
    """The word for two states, or None where both are right and speed decides."""
    if after is _State.WRONG:
        return Outcome.NEWLY_WRONG if before is _State.RIGHT else Outcome.WRONG
    if _State.KILLED in (before, after):
        return Outcome.INFRASTRUCTURE
    if _State.ABSENT in (before, after):
        return Outcome.NOT_MEASURED
    if after is _State.FAILED:
        return Outcome.FAILED_BOTH if before is _State.FAILED else Outcome.FAILED_HERE
    if before is _State.FAILED:
        return Outcome.FAILED_BEFORE
    if _State.UNSURE in (before, after):
        return Outcome.CANNOT_TELL
    return Outcome.NEWLY_RIGHT if before is _State.WRONG else None
