"""The cost model on real structure with made-up times that follow a known line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sweep_table
from typer.testing import CliRunner

from harness import cost_model, record, window
from harness.cells import Cell
from harness.cli import app
from harness.cost_model import CostModel
from harness.errors import FixcostError
from harness.record import CellResult, Group, Record
from harness.vocabulary import Alignment, Arm, Offset, Scenario

BASE, PER_TOKEN, PER_BYTE = 4e-3, 60e-6, 2e-9
NOISE = 0.1
PAIRS = 12
ATTENTION = Group(recurrent=False, layers=2, tokens_per_block=128, page_bytes=65536)
MAMBA = Group(recurrent=True, layers=3, tokens_per_block=128, page_bytes=50000)


def line(tokens: float, size: float) -> float:
    return BASE + PER_TOKEN * tokens + PER_BYTE * size


@pytest.fixture(scope="module")
def known(shipped_record: Record) -> Record:
    """Twelve samples a cell whose times follow the line, with heavy-tailed noise."""
    generator = np.random.default_rng(7)

    def sample(result: CellResult, index: int) -> record.Sample:
        taken = result.samples[0]
        shared = generator.standard_t(3) * NOISE
        arms = {
            arm: replace(
                one,
                ttft=line(one.recomputed_tokens, one.reload_bytes)
                * float(np.exp(shared + generator.standard_t(3) * NOISE / 2)),
            )
            for arm, one in taken.arms.items()
        }
        return replace(taken, index=index, arms=arms)

    cells = {
        cell: replace(result, samples=[sample(result, index) for index in range(PAIRS)])
        for cell, result in shipped_record.cells.items()
    }
    return replace(shipped_record, cells=cells)


@pytest.fixture(scope="module")
def model(known: Record) -> CostModel:
    return cost_model.fit(known)


@pytest.mark.parametrize("offset", Offset)
@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_window_follows_the_rules_of_vllm(chunks: int, offset: Offset) -> None:
    length = chunks * 128 + offset.tokens(128)
    for alignment, rule in (
        (Alignment.ALIGNED, sweep_table.cached_aligned),
        (Alignment.UNALIGNED, sweep_table.cached_unaligned),
    ):
        cached = rule(offset, chunks, 128)
        assert window.cached_tokens(length, 128, alignment) == cached
        expected = sweep_table.reload_bytes([ATTENTION, MAMBA], cached)
        assert window.reload_bytes([ATTENTION, MAMBA], 128, cached) == expected


def test_chunk_of_two_blocks_moves_both() -> None:
    """257 of 512 tokens hit: one chunk of 256 is two blocks of attention and one state."""
    cached = window.cached_tokens(257, 256, Alignment.ALIGNED)
    assert cached == 256
    moved = window.reload_bytes([ATTENTION, MAMBA], 256, cached)
    assert moved == 2 * 2 * 65536 + 3 * 50000


def test_line_is_found_again(model: CostModel) -> None:
    assert model.base.includes(BASE)
    assert model.per_token.includes(PER_TOKEN)
    assert model.per_byte.includes(PER_BYTE)
    assert model.per_token.value == pytest.approx(PER_TOKEN, rel=0.1)
    assert model.per_token.high / model.per_token.low < 1.3


def test_outliers_hardly_move_the_line(known: Record) -> None:
    """Two of the twelve samples of every fourth cell are ten times as slow."""
    cells = dict(known.cells)
    for cell in list(cells)[::4]:
        late = [
            replace(s, arms={a: replace(one, ttft=10 * one.ttft) for a, one in s.arms.items()})
            for s in cells[cell].samples[:2]
        ]
        cells[cell] = replace(cells[cell], samples=late + cells[cell].samples[2:])
    model = cost_model.fit(replace(known, cells=cells))
    assert model.per_token.value == pytest.approx(PER_TOKEN, rel=0.15)


def test_cells_left_out_are_told_by_the_others(known: Record, model: CostModel) -> None:
    assert [one.cell for one in model.held_out] == list(known.cells)
    for one in model.held_out:
        assert one.predicted.value == pytest.approx(one.measured, rel=0.2), one.cell.label
    within = sum(one.predicted.includes(one.measured) for one in model.held_out)
    assert within >= 0.9 * len(model.held_out)
    assert any(one.predicted.value > 1.5 for one in model.held_out)


def test_prediction_between_measured_lengths(model: CostModel) -> None:
    """Six chunks were not measured: aligned, 128 tokens are computed again; unaligned, 1."""
    found = cost_model.predict(model, 6 * 128, 128)
    assert found.recomputed_tokens == {Alignment.ALIGNED: 128, Alignment.UNALIGNED: 1}
    sizes = {
        Alignment.ALIGNED: sweep_table.reload_bytes(model.groups, 5 * 128),
        Alignment.UNALIGNED: sweep_table.reload_bytes(model.groups, 6 * 128 - 1),
    }
    assert found.reload_bytes == sizes
    truth = line(128, sizes[Alignment.ALIGNED]) / line(1, sizes[Alignment.UNALIGNED])
    assert found.fix_cost.includes(truth)
    assert found.fix_cost.high / found.fix_cost.low < 1.5
    assert found.beyond == ""


def test_off_the_boundary_nothing_changes(model: CostModel) -> None:
    found = cost_model.predict(model, 6 * 128 + 1, 128)
    assert found.fix_cost.value == pytest.approx(1.0)
    assert found.fix_cost.includes(1.0)


def test_beyond_what_was_measured_is_said(model: CostModel) -> None:
    """Measured are 255 to 1088 tokens, of which 1 to 128 are computed again."""
    found = cost_model.predict(model, 2816, 1408)
    assert found.beyond == "prompt length, recomputed tokens, reloaded bytes"
    assert cost_model.predict(model, 512, 256).beyond == "recomputed tokens"


def test_other_rules_are_refused(known: Record) -> None:
    """As in cache mode `align`, whose hits are others."""
    cell = Cell(Scenario.REPEAT, 3, Offset.EXACT)
    other = [
        replace(
            s,
            arms={
                **s.arms,
                Arm.RELOAD_ALIGNED: replace(s.arms[Arm.RELOAD_ALIGNED], cached_tokens=128),
            },
        )
        for s in known.cells[cell].samples
    ]
    cells = {**known.cells, cell: replace(known.cells[cell], samples=other)}
    with pytest.raises(FixcostError, match=r"repeat, 3 chunks 0\], so nothing can be predicted"):
        cost_model.fit(replace(known, cells=cells))


def test_too_few_cells_are_refused(known: Record) -> None:
    cells = {cell: result for cell, result in known.cells.items() if not cell.is_exact_boundary}
    with pytest.raises(FixcostError, match="two exact boundaries"):
        cost_model.fit(replace(known, cells=cells))


def test_command_explains_and_predicts(known: Record, tmp_path: Path) -> None:
    record.write_header(tmp_path, known.header)
    for result in known.cells.values():
        record.write_cell(tmp_path, result)
    command = ["predict", str(tmp_path), "--length", "512", "--length", "768"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "for each recomputed token" in shown.stdout
    assert "of 32 cells lie in the interval predicted for them" in " ".join(shown.stdout.split())
    found = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)
    assert [one["prompt_length"] for one in found["predictions"]] == [512, 768]
    assert len(found["held_out"]) == 32
    assert found["per_token"]["low"] < PER_TOKEN < found["per_token"]["high"]
