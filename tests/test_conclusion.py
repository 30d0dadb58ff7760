"""The words and tables that a run ends with, for outcomes that a real run should not have."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness import asv_names, comparison, conclusion, report
from harness.asv_names import Stored
from harness.cells import Cell, grid
from harness.comparison import Comparison, Row, Side
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.record import Record
from harness.verdict import Verdict
from harness.vocabulary import Offset, Scenario

RIGHT = Side(Verdict.EQUAL, Estimate(0.01, 0.009, 0.011, 8), 127, 280_576, True)
WRONG = replace(RIGHT, verdict=Verdict.WRONG, ttft=None, recomputed_tokens=1)


def compared(**changes: Row) -> Comparison:
    """Two and three chunks; the base is wrong at exact boundaries, where the fix costs 2x."""
    rows = {
        cell.key: Row(
            cell=cell,
            base=WRONG if cell.is_exact_boundary else RIGHT,
            fix=RIGHT,
            fix_cost=Estimate(2.0, 1.9, 2.1, 8),
            fix_costs=(2.0,) * 8 if cell.is_exact_boundary else (0.99, 1.01) * 4,
        )
        for cell in grid([2, 3])
    }
    return Comparison("main", "fix", [changes.get(key, row) for key, row in rows.items()], [])


def row_of(cell: Cell, **changes: object) -> dict[str, Row]:
    (row,) = (row for row in compared().rows if row.cell == cell)
    return {cell.key: replace(row, **changes)}  # type: ignore[arg-type]


def test_the_expected_outcome() -> None:
    assert conclusion.of_comparison(compared()) == (
        "Outputs of main are WRONG at every exact boundary (2 and 3 chunks) and right in the "
        "other 12 cells. Outputs of fix are right in all 16 cells. At exact boundaries the fix "
        "costs, in time to the first token against the wrong answer, 2.00x (2.00 to 2.00) at 2 "
        "chunks and 2.00x (2.00 to 2.00) at 3 chunks. Elsewhere no change is seen: 1.00x (0.99 to "
        "1.01). The known corruption was caught at every exact boundary, so this run could see "
        "the bug."
    )


def test_wrong_output_of_the_fix_is_named() -> None:
    cell = Cell(Scenario.EXTENDED, 3, Offset.ONE_ABOVE)
    said = conclusion.of_comparison(compared(**row_of(cell, fix=WRONG)))
    assert "Outputs of fix are WRONG in 1 of 16 cells: extended, 3 chunks +1." in said


def test_boundary_that_is_right_without_the_fix_is_not_glossed_over() -> None:
    cell = Cell(Scenario.REPEAT, 2, Offset.EXACT)
    said = conclusion.of_comparison(compared(**row_of(cell, base=RIGHT)))
    assert "Outputs of main are WRONG in 3 of 16 cells: repeat, 3 chunks 0, extended, 2" in said


def test_control_that_was_missed_is_said() -> None:
    cell = Cell(Scenario.REPEAT, 2, Offset.EXACT)
    blind = replace(RIGHT, control_caught=False)
    said = conclusion.of_comparison(compared(**row_of(cell, fix=blind)))
    assert "went UNSEEN in repeat, 2 chunks 0: this run could not see the bug there" in said


def test_change_elsewhere_is_not_called_none() -> None:
    slower = {
        cell.key: row
        for cell in grid([2, 3])
        if not cell.is_exact_boundary
        for row in row_of(cell, fix_costs=(1.2, 1.21, 1.19, 1.22, 1.2, 1.2, 1.21, 1.18)).values()
    }
    said = conclusion.of_comparison(compared(**slower))
    assert "Elsewhere the ratio is: 1.20x (1.20 to 1.20)." in said


def text_of(tables: list[object]) -> list[str]:
    console = Console(width=120, record=True, file=io.StringIO())
    for table in tables:
        console.print(table)
    return console.export_text().splitlines()


def test_wrong_arm_has_no_speed_in_the_table() -> None:
    lines = text_of(list(report.comparison_tables(compared())))
    boundary = next(line.split() for line in lines if "wrong" in line)
    assert boundary[:3] == ["2", "wrong", "equal"]
    assert "wrong" in boundary[3:]
    assert sum(line.startswith("Scenario") for line in lines) == 2


def test_low_precision_gets_no_verdict(shipped_record: Record) -> None:
    origin = replace(shipped_record.header.provenance, dtype="bfloat16")
    coarse = replace(shipped_record, header=replace(shipped_record.header, provenance=origin))
    said = conclusion.of_record(coarse)
    assert "cannot be told: below float32" in said
    assert "WRONG" not in said and "caught" not in said
    assert any("cannot tell" in line for line in text_of(list(report.record_tables(coarse))))


def test_low_precision_gets_no_verdict_in_a_comparison() -> None:
    unsure = replace(RIGHT, verdict=Verdict.CANNOT_TELL)
    rows = [replace(row, base=unsure, fix=unsure) for row in compared().rows]
    said = conclusion.of_comparison(Comparison("main", "fix", rows, []))
    assert said.startswith("Whether outputs of main and fix are right cannot be told")
    assert "right in" not in said and "WRONG" not in said and "caught" not in said


def test_cell_of_one_side_is_named() -> None:
    cell = Cell(Scenario.REPEAT, 8, Offset.EXACT)
    said = conclusion.of_comparison(replace(compared(), one_sided=[cell]))
    assert said.endswith("NOT MEASURED on both, and left out above: repeat, 8 chunks 0.")


POINT = ("repeat", "0", 2)


def stored() -> dict[str, dict[tuple[object, ...], Stored]]:
    """What asv keeps of one cell that is wrong as shipped, whose times therefore failed."""
    figure = Stored(1.0, ())
    arms = ("reload/shipped", "reload/unaligned")
    metrics = ("wrong_output", "recomputed_tokens", "reload_bytes")
    found = {f"reload.Reload.track_{m}": {(a, *POINT): figure for a in arms} for m in metrics}
    found["reload.Reload.track_ttft"] = {(arm, *POINT): Stored(None, ()) for arm in arms}
    found["reload.FixCost.track_fix_cost"] = {POINT: Stored(2.0, (2.0,) * 7)}
    return found


def test_wrong_cell_without_times_is_complete() -> None:
    assert comparison._measured_cells(stored()) == [Cell(Scenario.REPEAT, 2, Offset.EXACT)]


@pytest.mark.parametrize("metric", ["wrong_output", "recomputed_tokens", "reload_bytes"])
def test_cell_with_a_failed_benchmark_is_not_complete(metric: str) -> None:
    failed = stored()
    failed[f"reload.Reload.track_{metric}"]["reload/shipped", *POINT] = Stored(None, ())
    assert comparison._measured_cells(failed) == []


def test_right_cell_whose_time_failed_is_not_complete() -> None:
    failed = stored()
    failed["reload.Reload.track_wrong_output"]["reload/shipped", *POINT] = Stored(0.0, ())
    assert comparison._measured_cells(failed) == []


def test_record_for_programs(shipped_record: Record) -> None:
    read = json.loads(report.record_as_json(shipped_record))
    assert read["header"]["chunk"] == 128
    assert len(read["cells"]) == 32
    assert read["cells"][0]["samples"][0]["arms"]["cold"]["cached_tokens"] == 0


def test_commit_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison.git, "commit_of", lambda *_: "0" * 40)
    conf = Path(__file__).parents[1] / "asv.conf.json"
    with pytest.raises(FixcostError, match="same commit"):
        comparison.load(conf, "main", "HEAD")


def test_record_in_words(shipped_record: Record) -> None:
    said = conclusion.of_record(shipped_record)
    assert said.startswith("Outputs of vLLM 0.28.0 are right in all 32 cells.")
    assert said.endswith("caught at every exact boundary, so this run could see the bug.")


def test_nothing_measured_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asv_names, "registered_machine", lambda: "nobody")
    root = Path(__file__).parents[1]
    conf = tmp_path / "asv.conf.json"
    conf.write_text((root / "asv.conf.json").read_text().replace("./.subject", str(tmp_path)))
    monkeypatch.setattr(comparison.git, "commit_of", lambda _, name: name.rjust(40, "0"))
    with pytest.raises(FixcostError, match=r"Of main .* nothing complete is stored"):
        comparison.load(conf, "main", "fix-branch")
