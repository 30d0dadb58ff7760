"""Corruptions put into one arm of a real engine are caught there, nowhere else, and named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from harness import conclusion, engine, protocol, verdict
from harness.cells import Cell
from harness.cpu.offload import HostOffloadingWorker
from harness.engine import Engine
from harness.profiles import PROFILES
from harness.record import CellResult, Group, Record
from harness.verdict import Verdict
from harness.vocabulary import Alignment, Arm, Ended, Offset, Scenario

CELL = Cell(Scenario.REPEAT, 3, Offset.HALF_ABOVE)
SAMPLES = 3
Corrupt = Callable[[HostOffloadingWorker, "Loaded"], None]


class Loaded:
    """The pages that a load has just brought to the device, by group."""

    def __init__(self, worker: HostOffloadingWorker, groups: list[Group], blocks: Any) -> None:
        ends = np.cumsum(blocks.group_sizes).tolist()
        self.pages: dict[bool, list[torch.Tensor]] = {True: [], False: []}
        """Views on them, the recurrent ones under True."""
        for index, (group, count) in enumerate(zip(groups, blocks.group_sizes, strict=True)):
            for block in blocks.block_ids[ends[index] - count : ends[index]]:
                for layer in worker._layers[index]:
                    page = worker._device[layer.tensor_idx][int(block), : layer.page_size_bytes]
                    self.pages[group.recurrent].append(page)
        self.layers = {group.recurrent: group.layers for group in groups}


def flip_a_state_value(_: HostOffloadingWorker, loaded: Loaded) -> None:
    """The sign of one number of one layer's state, of middling size."""
    values = loaded.pages[True][0].view(torch.float32)
    state = values[values.numel() // 2 :]
    state[state.abs().argsort()[3 * state.numel() // 4]] *= -1


def swap_two_blocks(_: HostOffloadingWorker, loaded: Loaded) -> None:
    """Of two attention layers. Within one it is none: this model's attention has no positions."""
    first, second = loaded.pages[False][0], loaded.pages[False][loaded.layers[False] + 1]
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)


def drop_a_page(_: HostOffloadingWorker, loaded: Loaded) -> None:
    """One block of one attention layer never arrives."""
    loaded.pages[False][-1].zero_()


stale: list[torch.Tensor] = []


def leave_stale_bytes(_: HostOffloadingWorker, loaded: Loaded) -> None:
    """Half a page still holds what an earlier prompt left."""
    page = loaded.pages[False][0]
    stale.append(page.clone())
    half = page.numel() // 2
    page[:half] = stale[0][:half]


@pytest.fixture(scope="module")
def running(shipped_record: Record) -> Iterator[Engine]:
    """Started once the record is there: two engines cannot share a process."""
    assert shipped_record.header.finished
    with engine.start(PROFILES["cpu-tiny"]) as started:
        yield started


@contextmanager
def injected(running: Engine, corrupt: Corrupt, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Corrupt what is loaded while the arm `reload/shipped` is served."""
    load, alignment, active = HostOffloadingWorker.submit_load, Engine.alignment, [False]

    @contextmanager
    def marking(self: Engine, chosen: Alignment) -> Iterator[None]:
        active[0] = chosen is Alignment.SHIPPED
        with alignment(self, chosen):
            yield
        active[0] = False

    def loading(self: HostOffloadingWorker, job: int, source: Any, target: Any) -> bool:
        done = load(self, job, source, target)
        if active[0]:
            corrupt(self, Loaded(self, running.groups, target))
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "alignment", marking)
        patched.setattr(HostOffloadingWorker, "submit_load", loading)
        yield


def check_caught(record: Record, samples: list[Any], cell: Cell, length: int) -> None:
    """The cell with these samples, among the clean ones of a whole sweep."""
    result = CellResult(cell, length, samples, Ended.COUNT)
    spoilt = replace(record, cells=record.cells | {cell: result})
    spoilt = replace(spoilt, header=replace(spoilt.header, oracle=None))
    oracle = verdict.oracle_of(spoilt)
    assert not oracle.blind
    for other, measured in spoilt.cells.items():
        for arm in Arm:
            known = arm is Arm.RELOAD_UNALIGNED and other.is_exact_boundary
            wrong = known or (other == cell and arm is Arm.RELOAD_SHIPPED)
            expected = Verdict.WRONG if wrong else Verdict.EQUAL
            assert verdict.judge(measured, arm, oracle) is expected, (other.label, arm)
    said = conclusion.of_record(spoilt)
    assert f"Outputs of vLLM 0.28.0 are WRONG in 1 of 32 cells: {cell.label}." in said


@pytest.mark.parametrize(
    "corrupt", [flip_a_state_value, swap_two_blocks, drop_a_page, leave_stale_bytes]
)
def test_corruption_of_what_is_loaded(
    running: Engine, shipped_record: Record, monkeypatch: pytest.MonkeyPatch, corrupt: Corrupt
) -> None:
    stale.clear()
    with injected(running, corrupt, monkeypatch):
        samples = [protocol.take(running, CELL, 7, index) for index in range(SAMPLES)]
    check_caught(shipped_record, samples, CELL, CELL.prompt_length(running.chunk))


def test_last_token_applied_twice(
    running: Engine, shipped_record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug itself, in the arm of the code under test."""
    boundary = replace(CELL, offset=Offset.EXACT)
    monkeypatch.setattr(running, "_shipped", None)
    samples = [protocol.take(running, boundary, 7, index) for index in range(SAMPLES)]
    check_caught(shipped_record, samples, boundary, boundary.prompt_length(running.chunk))


def test_without_an_injection_nothing_is_caught(running: Engine, shipped_record: Record) -> None:
    samples = [protocol.take(running, CELL, 7, index) for index in range(SAMPLES)]
    result = CellResult(CELL, CELL.prompt_length(running.chunk), samples, Ended.COUNT)
    oracle = verdict.oracle_of(shipped_record)
    assert {verdict.judge(result, arm, oracle) for arm in Arm} == {Verdict.EQUAL}
