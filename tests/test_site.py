"""Parts of the site that a good run does not show: gaps, failures, change points, strangers."""

import json
from pathlib import Path

import pytest

from harness import points
from harness.asv_names import Stored
from harness.cells import Cell
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.site import history, offline, pages, pictures
from harness.verdict import Verdict
from harness.vocabulary import Arm, Offset, Scenario

CELL = Cell(Scenario.REPEAT, 2, Offset.EXACT)
SHIPPED = points.parameters(CELL, Arm.RELOAD_SHIPPED)


def stored(**values: float | None) -> dict[str, dict[tuple[object, ...], Stored]]:
    """One arm in one cell, by metric."""
    return {
        f"reload.Reload.track_{metric}": {
            SHIPPED: Stored(value, () if value is None else (value,)),
        }
        for metric, value in values.items()
    }


def box(found: dict[str, dict[tuple[object, ...], Stored]]) -> pages.Box:
    return pages._box(points.of(found).get((Arm.RELOAD_SHIPPED, CELL)), CELL)


def test_box_says_what_is_known() -> None:
    wrong = box(stored(wrong_output=1.0, wrong_tokens=2.0, logprob_drift=0.5, recomputed_tokens=1))
    assert (wrong.kind, wrong.symbol) == ("wrong", "\N{MULTIPLICATION SIGN}")
    assert wrong.says == "repeat, 2 chunks 0: WRONG; 2 tokens differ, drift 0.5 nats"
    equal = box(stored(wrong_output=0.0, wrong_tokens=0.0, logprob_drift=0.0))
    assert equal.kind == "equal"
    assert equal.says == "repeat, 2 chunks 0: equal; 0 tokens differ, drift 0 nats"


def test_box_of_what_cannot_be_told_failed_or_was_not_run() -> None:
    unsure = box(stored(wrong_output=float("nan"), wrong_tokens=1.0, logprob_drift=0.1))
    assert (unsure.kind, unsure.symbol) == ("unsure", "?")
    failed = box(stored(wrong_output=None, recomputed_tokens=128.0))
    assert (failed.kind, failed.symbol, failed.says) == (
        "failed",
        "!",
        "repeat, 2 chunks 0: failed",
    )
    assert box({}) == pages.Box("absent", "\N{EN DASH}", "repeat, 2 chunks 0: not run")
    assert box(stored(wrong_output=None, wrong_tokens=None)).kind == "absent"


def test_wrong_arm_has_no_time_even_if_one_is_stored() -> None:
    found = points.of(stored(wrong_output=1.0, ttft=0.01, recomputed_tokens=1.0))
    point = found[Arm.RELOAD_SHIPPED, CELL]
    assert point.verdict is Verdict.WRONG
    assert point.ttft is None


def test_picture_of_a_run_with_gaps() -> None:
    found = points.of(stored(wrong_output=0.0, ttft=0.01, recomputed_tokens=1.0))
    drawn = pictures.as_svg(pictures.ttft(found, [], Scenario.REPEAT), "gaps")
    assert 'id="ttft-repeat-reload-shipped"' in drawn
    assert 'id="ttft-repeat-cold"' not in drawn
    assert 'aria-label="gaps"' in drawn
    assert pictures.INK not in drawn


def exactly(*values: float | None) -> list[Estimate | None]:
    return [None if one is None else Estimate(one, 0.99 * one, 1.01 * one, 9) for one in values]


def test_change_is_where_levels_and_intervals_part() -> None:
    assert history.changes(exactly(10.0, 10.0, 10.0, 20.0, 20.0, 20.0)) == [3]
    assert history.changes(exactly(10.0, 10.0, None, 20.0, 20.0)) == [3]
    assert history.changes(exactly(10.0, 10.05, 9.95, 10.0)) == []
    assert history.changes([]) == []
    wide = [Estimate(one, one / 3, one * 3, 9) for one in (10.0, 10.0, 20.0, 20.0)]
    assert history.changes(wide) == []


def published(folder: Path, page: str) -> Path:
    (folder / "index.html").write_text(page)
    return folder


def test_stranger_on_asvs_page_is_refused(tmp_path: Path) -> None:
    page = (
        '<script src="https://cdn.example.org/x/new.js"></script><li id="nav-li-" class="active">'
    )
    with pytest.raises(FixcostError, match=r"asks cdn\.example\.org for new\.js, which is not in"):
        offline.mend_page(published(tmp_path, page))


def test_page_without_tabs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FixcostError, match="no first tab"):
        offline.mend_page(published(tmp_path, "<html></html>"))


def test_only_what_has_no_value_now_is_marked(tmp_path: Path) -> None:
    rows = [
        {"name": "a", "idx": i, "pretty_name": f"a({i})", "last_value": 3.0, "prev_value": 2.0}
        for i in (0, 1)
    ]
    (tmp_path / "summary.json").write_text(json.dumps(rows))
    offline.mark_failures(tmp_path, {"summary.json": {("a", 1)}})
    good, failed = json.loads((tmp_path / "summary.json").read_text())
    assert good == rows[0]
    assert failed["pretty_name"] == "FAILED NOW: a(1)"
    assert failed["last_value"] is failed["prev_value"] is None
