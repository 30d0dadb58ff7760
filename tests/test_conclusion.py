"""The words and tables that a run ends with, for outcomes that a real run should not have."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness import asv_names, comparison, conclusion, report, starts
from harness.asv_names import Stored
from harness.cells import Cell, grid
from harness.comparison import Comparison, Row, Side
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.record import Conditions, Record
from harness.verdict import Verdict
from harness.vocabulary import Arm, Ended, Offset, Scenario

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
            noise=(0.98, 1.02) * 6,
            detectable=0.04 if cell.chunks == 2 else 0.125,
            between=None,
        )
        for cell in grid([2, 3])
    }
    kept = [changes.get(key, row) for key, row in rows.items()]
    return Comparison("main", "fix", kept, [], [], None)


def row_of(cell: Cell, **changes: object) -> dict[str, Row]:
    (row,) = (row for row in compared().rows if row.cell == cell)
    return {cell.key: replace(row, **changes)}  # type: ignore[arg-type]


def test_the_expected_outcome() -> None:
    assert conclusion.of_comparison(compared()) == (
        "Outputs of main are WRONG at every exact boundary (2 and 3 chunks) and right in the "
        "other 12 cells. Outputs of fix are right in all 16 cells. At exact boundaries of 2 and 3 "
        "chunks the fix costs 2.00x in time to the first token, against the wrong answer (95 % "
        "interval 2.00 to 2.00, 32 pairs): 2.00x (2.00 to 2.00) at 2 and 2.00x (2.00 to 2.00) at "
        "3. Elsewhere no change is seen, and none is larger than 0.3 % (1.00 to 1.00, 96 pairs). "
        "Two identical arms differed by 1.00x (1.00 to 1.00); a change of 4 % to 12 %, by the "
        "cell, would have been seen. The known corruption was caught at every exact boundary, so "
        "this run could see the bug."
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
    assert "Elsewhere the ratio is 1.20x (1.20 to 1.20, 96 pairs)." in said


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


def test_blind_run_gets_no_verdict(shipped_record: Record) -> None:
    oracle = shipped_record.header.oracle
    assert oracle is not None
    unsure = replace(oracle, blind="noise is as large as the corruption")
    coarse = replace(shipped_record, header=replace(shipped_record.header, oracle=unsure))
    said = conclusion.of_record(coarse)
    assert "cannot be told at this precision: noise is as large as the corruption." in said
    assert "WRONG" not in said and "caught" not in said
    assert any("cannot tell" in line for line in text_of(list(report.record_tables(coarse))))


def test_low_precision_gets_no_verdict_in_a_comparison() -> None:
    unsure = replace(RIGHT, verdict=Verdict.CANNOT_TELL)
    rows = [replace(row, base=unsure, fix=unsure) for row in compared().rows]
    said = conclusion.of_comparison(Comparison("main", "fix", rows, [], [], None))
    assert said.startswith("Whether outputs of main and fix are right cannot be told")
    assert "right in" not in said and "WRONG" not in said and "caught" not in said


def between(base: list[float], fix: list[float]) -> str:
    found = replace(compared(), between=starts.compare(base, fix))
    return conclusion.of_comparison(found)


def test_commits_are_compared_by_their_starts() -> None:
    assert (
        "Whether fix is slower than main under the same alignment cannot be told below 29 %: one "
        "start of each is too few (`fixcost bench --more-starts 5` adds some)."
    ) in between([0.010], [0.020])
    same = [0.0100, 0.0101, 0.0099]
    assert "Under the same alignment no change is seen, and none is larger than 7 %" in (
        between(same, [0.0101, 0.0099, 0.0100])
    )
    assert "fix is SLOWER by 1.20x (1.20 to 1.20) (3 pairs of starts; a change of" in (
        between(same, [one * 1.2 for one in same])
    )
    assert "fix is FASTER by 0.50x" in between(same, [one / 2 for one in same])


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
    found["reload.FixCost.track_noise"] = {POINT: Stored(1.0, (1.0,) * 7)}
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
    assert read["cells"][0]["result"]["samples"][0]["arms"]["cold"]["cached_tokens"] == 0
    assert read["cells"][0]["fix_cost"]["count"] == 3
    assert read["cells"][0]["detectable"] > 0
    assert [fault for fault in read["faults"] if "fewer than 12 pairs" in fault]


def test_commit_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison.git, "commit_of", lambda *_: "0" * 40)
    conf = Path(__file__).parents[1] / "asv.conf.json"
    with pytest.raises(FixcostError, match="same commit"):
        comparison.load(conf, "main", "HEAD")


def test_record_in_words(shipped_record: Record) -> None:
    said = conclusion.of_record(shipped_record)
    assert said.startswith("DO NOT TRUST THIS RUN: 32 of 32 cells have fewer than 12 pairs")
    assert "Outputs of vLLM 0.28.0 are right in all 32 cells." in said
    assert "caught at every exact boundary, so this run could see the bug." in said


def test_run_with_enough_pairs_is_trusted(shipped_record: Record) -> None:
    said = conclusion.of_record(with_pairs(shipped_record, 12))
    assert said.startswith("Outputs of vLLM 0.28.0 are right in all 32 cells.")


def with_pairs(record: Record, count: int) -> Record:
    """The same samples over and over, and two identical arms that really are."""
    cells = {}
    for cell, result in record.cells.items():
        same = [
            replace(s, arms=s.arms | {Arm.RELOAD_ALIGNED_AGAIN: s.arms[Arm.RELOAD_ALIGNED]})
            for s in result.samples
        ]
        cells[cell] = replace(result, samples=(same * count)[:count])
    return replace(record, cells=cells)


def test_failed_a_a_test_is_said_first(shipped_record: Record) -> None:
    """The second of two identical arms takes 5 % longer in every sample."""
    cells = {}
    for cell, result in with_pairs(shipped_record, 12).cells.items():
        slower = [
            replace(
                s,
                arms=s.arms
                | {
                    Arm.RELOAD_ALIGNED_AGAIN: replace(
                        s.arms[Arm.RELOAD_ALIGNED], ttft=s.arms[Arm.RELOAD_ALIGNED].ttft * 1.05
                    )
                },
            )
            for s in result.samples
        ]
        cells[cell] = replace(result, samples=slower)
    said = conclusion.of_record(replace(shipped_record, cells=cells))
    assert said.startswith("DO NOT TRUST THIS RUN: The A/A test failed: two identical arms differ")


def test_arm_that_is_wrong_where_none_should_be_is_named(shipped_record: Record) -> None:
    cell = Cell(Scenario.REPEAT, 2, Offset.ONE_ABOVE)
    result = shipped_record.cells[cell]
    first = result.samples[0]
    drifted = replace(first.arms[Arm.GPU_HIT], logprob_drift=0.1)
    spoilt = replace(first, arms=first.arms | {Arm.GPU_HIT: drifted})
    cells = shipped_record.cells | {cell: replace(result, samples=[spoilt])}
    said = conclusion.of_record(replace(shipped_record, cells=cells))
    assert "Arm gpu_hit is WRONG as well, in 1 cells: repeat, 2 chunks +1." in said
    assert "WRONG as well" not in conclusion.of_record(shipped_record)


def test_comparison_of_a_run_with_faults_is_marked() -> None:
    said = conclusion.of_comparison(replace(compared(), faulty=["main"]))
    assert said.startswith("DO NOT TRUST THIS COMPARISON: the run of main has faults")


def test_disturbed_samples_are_counted_and_explained(shipped_record: Record) -> None:
    (cell, result), *_ = with_pairs(shipped_record, 12).cells.items()
    busy = Conditions(load_average=3, frequency=2000, background=0.9, steal=0.3, burst=True)
    calm = Conditions(load_average=0, frequency=3000, background=0, steal=0, burst=False)
    samples = [
        replace(sample, conditions=busy if index < 3 else calm)
        for index, sample in enumerate(result.samples)
    ]
    header = replace(shipped_record.header, settled=False, cell_seconds=1.0)
    late = replace(result, samples=samples, ended=Ended.TIME)
    said = conclusion.of_record(Record(header, {cell: late}))
    assert "3 of 12 samples were taken during a disturbance." in said
    assert "Other programs kept 0.23 cores busy" in said
    assert "The hypervisor withheld 0.075 cores" in said
    assert "The clock varied between 2000 and 3000 MHz" in said
    assert "Times were still falling after" in said
    assert "1 of 1 cells used up their 1 s before the interval was within 3 %" in said


def test_nothing_measured_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asv_names, "registered_machine", lambda: "nobody")
    root = Path(__file__).parents[1]
    conf = tmp_path / "asv.conf.json"
    conf.write_text((root / "asv.conf.json").read_text().replace("./.subject", str(tmp_path)))
    monkeypatch.setattr(comparison.git, "commit_of", lambda _, name: name.rjust(40, "0"))
    with pytest.raises(FixcostError, match=r"Of main .* nothing complete is stored"):
        comparison.load(conf, "main", "fix-branch")
