"""Every word of the answer on a pull request, from made-up results of two commits."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from harness import answer, comparison, outcomes, points
from harness.answer import Answer
from harness.asv_names import Stored
from harness.cells import Cell, grid
from harness.comparison import Comparison, NothingStoredError
from harness.errors import FixcostError
from harness.outcomes import Outcome
from harness.vocabulary import Arm, Offset, Scenario

RIGHT, WRONG, FAILED, NAN = 0.0, 1.0, None, math.nan
CELL = Cell(Scenario.REPEAT, 2, Offset.EXACT)
SAME = (0.0100, 0.0101, 0.0099)
Side = dict[str, dict[tuple[object, ...], Stored]]


def side(value: float | None, starts: tuple[float, ...] = SAME, *, measured: bool = True) -> Side:
    """What asv has of a commit whose own code did `value` in the one cell."""
    shipped = points.parameters(CELL, Arm.RELOAD_SHIPPED)
    known = value is not None and measured
    samples = (value,) if known and not math.isnan(value or 0.0) else ()
    return {
        "reload.Reload.track_wrong_output": {shipped: Stored(value, samples)},
        "reload.Reload.track_recomputed_tokens": {shipped: Stored(128.0 if known else value, ())},
        "reload.Start.track_ttft": {points.parameters(CELL): Stored(starts[0], starts)},
        "reload.FixCost.track_fix_cost": {
            points.parameters(CELL): Stored(2.0, (1.9, 2.0, 2.1) * 4)
        },
    }


def word(base: Side, fix: Side, killed: tuple[bool, bool] = (False, False)) -> Outcome:
    (found,) = (one for one in outcomes.of(base, fix, killed) if one.cell == CELL)
    return found.outcome


@pytest.mark.parametrize(
    ("base", "fix", "said"),
    [
        (side(RIGHT), side(WRONG), "newly wrong output"),
        (side(WRONG), side(WRONG), "wrong output"),
        (side(FAILED), side(WRONG), "wrong output"),
        (side(WRONG), side(RIGHT), "newly right output"),
        (side(RIGHT), side(RIGHT), "no change seen"),
        (side(RIGHT), side(RIGHT, tuple(1.3 * one for one in SAME)), "slower"),
        (side(RIGHT), side(RIGHT, tuple(0.7 * one for one in SAME)), "faster"),
        (side(RIGHT), side(RIGHT, (0.03,)), "too few starts to tell the speed"),
        (side(FAILED), side(FAILED), "failed on both"),
        (side(RIGHT), side(FAILED), "failed only here"),
        (side(FAILED), side(RIGHT), "failed only before"),
        (side(RIGHT), side(NAN), "cannot tell right from wrong"),
        (side(RIGHT), side(NAN, measured=False), "not measured"),
        ({}, side(RIGHT), "not measured"),
        (side(RIGHT), {}, "not measured"),
    ],
)
def test_the_word_for_two_commits(base: Side, fix: Side, said: str) -> None:
    assert word(base, fix) == said


def test_a_run_that_was_killed_is_infrastructure() -> None:
    assert word(side(RIGHT), side(FAILED), (False, True)) is Outcome.INFRASTRUCTURE
    assert word({}, side(RIGHT), (True, False)) is Outcome.INFRASTRUCTURE
    assert word(side(WRONG), side(RIGHT), (True, True)) is Outcome.NEWLY_RIGHT


def test_wrong_in_any_start_is_wrong() -> None:
    fix = side(RIGHT)
    shipped = points.parameters(CELL, Arm.RELOAD_SHIPPED)
    fix["reload.Reload.track_wrong_output"][shipped] = Stored(0.0, (0.0, 1.0, 0.0))
    assert word(side(RIGHT), fix) is Outcome.NEWLY_WRONG


def answered(base: Side, fix: Side, budget: float | None = None) -> Answer:
    found = outcomes.of(base, fix)
    return Answer("main", "fix", found, None, "", answer._beyond(found, budget), budget)


@pytest.mark.parametrize(
    ("base", "fix", "budget", "code"),
    [
        (side(RIGHT), side(RIGHT), None, 0),
        (side(WRONG), side(RIGHT), None, 0),
        (side(WRONG), side(WRONG), None, 0),
        (side(WRONG), side(RIGHT), 1.5, 1),
        (side(WRONG), side(RIGHT), 2.5, 0),
        (side(RIGHT), side(RIGHT, tuple(1.3 * one for one in SAME)), None, 0),
        (side(RIGHT), side(RIGHT, tuple(1.3 * one for one in SAME)), 1.1, 1),
        (side(RIGHT), side(RIGHT, (0.09,)), 1.1, 0),
        (side(RIGHT), side(WRONG), None, 1),
        (side(RIGHT), {}, None, 3),
        ({}, {}, None, 3),
    ],
)
def test_exit_code(base: Side, fix: Side, budget: float | None, code: int) -> None:
    assert answered(base, fix, budget).exit_code == code


def test_loss_of_correctness_leads_whatever_the_speed_did() -> None:
    faster = tuple(0.5 * one for one in SAME)
    found = answered(side(RIGHT), side(WRONG, faster), 1.1)
    expected = "OUTPUT OF fix IS NEWLY WRONG in 1 of 8 cells: repeat, 2 chunks 0."
    assert answer.lead(found).startswith(expected)
    text = answer.markdown(found)
    assert text.splitlines()[2].startswith(f"**{expected}")
    assert "| **newly wrong output** | 1 | repeat, 2 chunks 0 |" in text
    assert "| not measured | 7 |" in text
    assert json.loads(answer.as_json(found))["exit_code"] == 1


def test_faults_of_a_run_lead_even_that() -> None:
    compared = Comparison("main", "fix", [], [], faulty=["fix"], between=None)
    found = replace(answered(side(RIGHT), side(WRONG)), comparison=compared)
    assert answer.lead(found).startswith("DO NOT TRUST THIS COMPARISON: the run of fix has faults")


def test_nothing_measured_is_said() -> None:
    assert answer.lead(answered({}, {})) == "Nothing was measured on both main and fix."


@pytest.mark.parametrize("text", ["1.5", "ttft", "ttft=", "ttft=x", "ttft=0.9", "ttft=nan", "a=2"])
def test_budget_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(FixcostError, match=r"as ttft=1\.5, not"):
        answer.parse_budget(text)


def test_budget_is_a_ratio() -> None:
    assert answer.parse_budget("ttft=1.5") == 1.5
    assert answer.parse_budget(None) is None


def test_one_failed_commit_still_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NothingStoredError("Of fix nothing complete is stored.")

    found = outcomes.of(side(RIGHT), side(FAILED))
    monkeypatch.setattr(comparison, "outcomes", lambda *_: found)
    monkeypatch.setattr(comparison, "load", refuse)
    shown = answer.collect(Path("asv.conf.json"), "main", "fix")
    assert shown.exit_code == 1
    assert "1 failed only here" in answer.lead(shown).lower()


def test_cells_of_the_sweep_come_in_their_order() -> None:
    assert [one.cell for one in outcomes.of(side(RIGHT), side(RIGHT))] == grid([2])
