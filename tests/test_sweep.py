"""The table of the bug, on the real engine, and what a sweep does when it is disturbed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import filelock
import pytest
import sweep_table
from conftest import SAMPLES

from harness import cells, estimate, numbers, protocol, record, sweep, verdict
from harness.cells import Cell
from harness.errors import FixcostError
from harness.profiles import PROFILES
from harness.record import CellResult, Record
from harness.vocabulary import RELOAD_ARMS, Arm, Offset, Scenario

TINY = replace(PROFILES["cpu-tiny"], samples=1, cell_seconds=0.0)
TWO_CELLS = [Cell(Scenario.REPEAT, 2, Offset.EXACT), Cell(Scenario.REPEAT, 2, Offset.ONE_ABOVE)]


def test_table_of_the_fixed_release(shipped_record: Record) -> None:
    assert len(shipped_record.cells) == 2 * 4 * 4
    sweep_table.check(shipped_record, shipped=Arm.RELOAD_ALIGNED)


def test_tokens_are_wrong_too_at_exact_boundaries(shipped_record: Record) -> None:
    wrong = [
        sample.arms[Arm.RELOAD_UNALIGNED]
        for cell, result in shipped_record.cells.items()
        if cell.is_exact_boundary
        for sample in result.samples
    ]
    assert wrong
    assert all(arm.wrong_tokens > 0 and arm.first_wrong is not None for arm in wrong)


def test_recomputing_a_chunk_dominates(shipped_record: Record) -> None:
    at_boundaries = [
        numbers.fix_costs(result)
        for cell, result in shipped_record.cells.items()
        if cell.is_exact_boundary
    ]
    cost = estimate.pooled(at_boundaries)
    assert cost.count == 8 * 3
    assert cost.value > 1.5


def test_order_of_the_arms_is_random_and_balanced() -> None:
    """In four samples each arm has each place, and each neighbour, once."""
    arms = set(RELOAD_ARMS)
    orders = [protocol._order(TWO_CELLS[0], 0, index) for index in range(80)]
    for first in range(0, 80, 4):
        four = orders[first : first + 4]
        assert all(set(place) == arms for place in zip(*four, strict=True))
        neighbours = [pair for order in four for pair in pairwise(order)]
        assert len(set(neighbours)) == len(neighbours) == 12
    assert len(set(orders)) > 12


def test_record_holds_the_order_that_was_drawn(shipped_record: Record) -> None:
    for cell, result in shipped_record.cells.items():
        drawn = [protocol._order(cell, 1, index) for index in range(SAMPLES)]
        assert [sample.order for sample in result.samples] == drawn


def test_times_have_settled_when_they_stop_falling() -> None:
    assert not sweep.has_settled([9, 8, 7, 6, 5, 4, 3, 2])
    assert sweep.has_settled([9, 5, 5, 5, 5, 5, 5, 5])
    assert sweep.has_settled([5, 5, 5, 5, 9, 9, 9, 9])


def test_oracle_is_derived_from_the_run(shipped_record: Record) -> None:
    oracle = shipped_record.header.oracle
    assert oracle is not None
    drifts = [
        s.arms[Arm.GPU_HIT].logprob_drift for r in shipped_record.cells.values() for s in r.samples
    ]
    assert oracle.gpu_hits == len(drifts) == 32 * SAMPLES
    assert sum(drift <= oracle.floor for drift in drifts) >= 0.9 * len(drifts)
    assert oracle.floor <= oracle.noise < oracle.threshold < oracle.weakest / 100
    assert oracle.tokens_count and not oracle.blind


def test_record_says_where_it_came_from(shipped_record: Record) -> None:
    origin = shipped_record.header.provenance
    assert origin.vllm == "0.28.0"
    assert origin.commit is None
    assert origin.state_dtype == "float32"
    assert set(origin.cores) <= os.sched_getaffinity(0) and origin.cores
    assert shipped_record.header.finished is not None


def start_sweep(place: Path, *arguments: str) -> "subprocess.Popen[str]":
    entry = "from harness.cli import main; main()"
    command = [sys.executable, "-c", entry, "sweep", "--out", str(place), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_cells(partial: Path, count: int, running: "subprocess.Popen[str]") -> list[Path]:
    while len(found := sorted((partial / "cells").glob("*.json"))) < count:
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    return found


def test_stopped_sweep_goes_on_and_keeps_what_it_had(tmp_path: Path) -> None:
    """Interrupted, then killed, then left alone: every cell is measured once."""
    place, partial = tmp_path / "kept", tmp_path / "kept.partial"
    arguments = ("--chunks", "2", "--samples", "2")
    measured: dict[str, int] = {}
    for sent, cells_to_wait_for in ((signal.SIGINT, 2), (signal.SIGKILL, 4)):
        stopped = start_sweep(place, *arguments)
        wait_for_cells(partial, cells_to_wait_for, stopped)
        stopped.send_signal(sent)
        _, errors = stopped.communicate()
        assert stopped.returncode == (130 if sent is signal.SIGINT else -sent)
        assert "Traceback" not in errors
        assert not place.exists()
        found = {p.name: p.stat().st_mtime_ns for p in (partial / "cells").glob("*.json")}
        assert {name: found.get(name) for name in measured} == measured
        measured = found

    last = start_sweep(place, *arguments)
    printed, errors = last.communicate()
    assert last.returncode == 0, errors
    found = {path.name: path.stat().st_mtime_ns for path in (place / "cells").iterdir()}
    assert len(found) == 8
    assert {name: found[name] for name in measured} == measured
    assert not partial.exists()
    assert "right in all 8 cells" in printed


def test_other_seed_does_not_resume(tmp_path: Path, shipped_record: Record) -> None:
    partial = tmp_path / "partial"
    record.write_header(partial, replace(shipped_record.header, finished=None))
    for result in shipped_record.cells.values():
        record.write_cell(partial, result)
    same = replace(
        shipped_record.header,
        finished=None,
        provenance=replace(shipped_record.header.provenance, started="later", load_average=9.0),
    )
    assert sweep._resume_or_begin(partial, same) == replace(shipped_record.header, finished=None)
    assert len(record.read(partial).cells) == 32
    other = replace(same, seed=same.seed + 1)
    assert sweep._resume_or_begin(partial, other) == other
    assert record.read(partial).cells == {}


def test_two_sweeps_cannot_write_the_same_place(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with (
        filelock.FileLock(tmp_path / ".place.lock"),
        pytest.raises(FixcostError, match="Another sweep is writing"),
    ):
        sweep.run(TINY, TWO_CELLS, place, seed=0)
    assert not place.exists()


@pytest.mark.parametrize("name", ["place", "place.partial"])
def test_place_with_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    thesis = tmp_path / name / "cells" / "thesis.json"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    with pytest.raises(FixcostError, match="is not a record"):
        sweep.run(TINY, TWO_CELLS, tmp_path / "place", seed=0)
    assert thesis.read_text() == "years of work"


def corrupt(result: Record, cell: Cell, **changes: object) -> Record:
    """The record with the unaligned arm of one sample of `cell` changed."""
    found = result.cells[cell]
    first, *others = found.samples
    arms = dict(first.arms)
    arms[Arm.RELOAD_UNALIGNED] = replace(arms[Arm.RELOAD_UNALIGNED], **changes)  # type: ignore[arg-type]
    changed = replace(found, samples=[replace(first, arms=arms), *others])
    return replace(result, cells={**result.cells, cell: changed})


def test_control_that_is_missed_once_fails_the_run(shipped_record: Record) -> None:
    verdict.check_control(shipped_record)
    cell = Cell(Scenario.EXTENDED, 4, Offset.EXACT)
    blind = corrupt(shipped_record, cell, wrong_tokens=0, logprob_drift=1e-6)
    with pytest.raises(FixcostError, match=r"unseen in 1 of 24 samples.*extended, 4 chunks"):
        verdict.check_control(blind)
    aligned = shipped_record.cells[cell].samples[0].arms[Arm.RELOAD_ALIGNED].cached_tokens
    unswitched = corrupt(blind, cell, cached_tokens=aligned)
    with pytest.raises(FixcostError, match=r"unseen in 1 of 24 samples.*extended, 4 chunks"):
        verdict.check_control(unswitched)
    drift_alone = corrupt(shipped_record, cell, wrong_tokens=0, logprob_drift=0.004)
    verdict.check_control(drift_alone)


def test_sweep_without_a_boundary_cannot_see_the_bug(shipped_record: Record) -> None:
    cells_left = {c: r for c, r in shipped_record.cells.items() if not c.is_exact_boundary}
    with pytest.raises(FixcostError, match="at least 2 chunks"):
        verdict.check_control(replace(shipped_record, cells=cells_left))


def test_one_chunk_never_hits_at_the_boundary(tmp_path: Path) -> None:
    place = tmp_path / "one"
    profile = replace(TINY, samples=2, cell_seconds=0.0)
    grid = [*cells.grid([1]), TWO_CELLS[0]]
    swept = sweep.run(profile, grid, place, seed=3)
    sweep_table.check(swept, shipped=Arm.RELOAD_ALIGNED)
    at_one = swept.cells[Cell(Scenario.REPEAT, 1, Offset.EXACT)].samples[0].arms
    assert {arm: at_one[arm].cached_tokens for arm in at_one if arm is not Arm.GPU_HIT} == {
        arm: 0 for arm in at_one if arm is not Arm.GPU_HIT
    }


def test_damaged_cell_is_named_and_nothing_is_lost(tmp_path: Path, shipped_record: Record) -> None:
    record.write_header(tmp_path, replace(shipped_record.header, finished=None))
    for result in shipped_record.cells.values():
        record.write_cell(tmp_path, result)
    damaged = tmp_path / "cells" / "repeat_2_0.json"
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(FixcostError, match=r"repeat_2_0\.json is damaged"):
        record.read(tmp_path)
    assert len(list((tmp_path / "cells").iterdir())) == 32
    damaged.unlink()
    assert len(record.read(tmp_path).cells) == 31


def without_an_arm(result: CellResult) -> CellResult:
    arms = {arm: kept for arm, kept in result.samples[0].arms.items() if arm is not Arm.COLD}
    return replace(result, samples=[replace(result.samples[0], arms=arms)])


def without_time(result: CellResult) -> CellResult:
    first = result.samples[0]
    arms = {**first.arms, Arm.COLD: replace(first.arms[Arm.COLD], ttft=0.0)}
    return replace(result, samples=[replace(first, arms=arms)])


@pytest.mark.parametrize(
    "spoil", [without_an_arm, without_time, lambda result: replace(result, samples=[])]
)
def test_cell_that_cannot_be_is_damaged(
    tmp_path: Path, shipped_record: Record, spoil: Callable[[CellResult], CellResult]
) -> None:
    cell = TWO_CELLS[0]
    record.write_cell(tmp_path, spoil(shipped_record.cells[cell]))
    with pytest.raises(FixcostError, match=r"repeat_2_0\.json is damaged"):
        record.read_cell(tmp_path, cell)


def test_cell_under_another_name_is_damaged(tmp_path: Path, shipped_record: Record) -> None:
    record.write_cell(tmp_path, shipped_record.cells[TWO_CELLS[0]])
    folder = tmp_path / "cells"
    (folder / "repeat_2_0.json").rename(folder / "repeat_2_+1.json")
    with pytest.raises(FixcostError, match=r"repeat_2_\+1\.json is damaged"):
        record.read_cell(tmp_path, TWO_CELLS[1])


def test_complete_record_with_a_missing_cell_is_damaged(
    tmp_path: Path, shipped_record: Record
) -> None:
    record.write_header(tmp_path, shipped_record.header)
    with pytest.raises(FixcostError, match=r"complete and lacks \[repeat, 2 chunks -1\]"):
        record.read(tmp_path)


def test_record_survives_the_disk(tmp_path: Path, shipped_record: Record) -> None:
    record.write_header(tmp_path, shipped_record.header)
    for result in shipped_record.cells.values():
        record.write_cell(tmp_path, result)
    assert record.read(tmp_path) == shipped_record
    as_written = json.loads((tmp_path / "cells" / "repeat_2_0.json").read_text())
    assert as_written["samples"][0]["arms"]["reload/aligned"]["cached_tokens"] == 128


def test_record_of_another_schema_is_refused(tmp_path: Path, shipped_record: Record) -> None:
    record.write_header(tmp_path, replace(shipped_record.header, schema=99))
    with pytest.raises(FixcostError, match="schema 99"):
        record.read(tmp_path)


def test_full_disk_leaves_the_finished_cells(tmp_path: Path) -> None:
    """A real full disk: a file system of 64 KiB, where mounting one is allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "fixcost-test", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        with pytest.raises(FixcostError, match="No space left"):
            sweep.run(
                replace(TINY, samples=4, cell_seconds=0.0),
                cells.grid([2, 3]),
                disk / "place",
                seed=0,
            )
        kept = record.read(disk / "place.partial")
        assert 0 < len(kept.cells) < 16
        assert not (disk / "place").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    shutil.rmtree(disk)
