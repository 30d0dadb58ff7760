"""Beyond the default: other chunks, other cache modes, and engines that must not start."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
import sweep_table

from harness import (
    architectures,
    axes,
    checkpoint,
    engine,
    hardware,
    profiles,
    record,
    sweep,
    verdict,
    vllm_names,
)
from harness.cells import Cell, grid
from harness.engine import common_chunk
from harness.errors import FixcostError
from harness.profiles import PROFILES
from harness.verdict import Verdict
from harness.vocabulary import RELOAD_ARMS, Arm, CacheMode, Offset, Scenario

TINY = PROFILES["cpu-tiny"]
BOUNDARY = Cell(Scenario.REPEAT, 2, Offset.EXACT)


@pytest.mark.parametrize("blocks_per_chunk", [2, 4])
def test_table_with_larger_chunks(tmp_path: Path, blocks_per_chunk: int) -> None:
    profile = replace(TINY, blocks_per_chunk=blocks_per_chunk, samples=1, cell_seconds=0.0)
    swept = sweep.run(profile, grid([1, 2]), tmp_path / "swept", seed=0)
    assert swept.header.chunk == 128 * blocks_per_chunk
    sweep_table.check(swept, shipped=Arm.RELOAD_ALIGNED)


def test_align_mode_reloads_nothing_at_an_exact_boundary(tmp_path: Path) -> None:
    """vLLM 0.28 keeps no state there in this mode: right, but the whole prompt is recomputed."""
    profile = replace(TINY, cache_mode=CacheMode.ALIGN, samples=2, cell_seconds=0.0)
    cells = [BOUNDARY, replace(BOUNDARY, offset=Offset.ONE_ABOVE)]
    swept = sweep.run(profile, cells, tmp_path / "swept", seed=0)
    for sample in swept.cells[BOUNDARY].samples:
        shipped, unaligned = sample.arms[Arm.RELOAD_SHIPPED], sample.arms[Arm.RELOAD_UNALIGNED]
        assert (shipped.cached_tokens, shipped.reload_bytes, shipped.wrong_tokens) == (0, 0, 0)
        assert shipped.logprob_drift < sweep_table.EQUAL_BELOW
        assert unaligned.cached_tokens == 255
        assert unaligned.logprob_drift > sweep_table.WRONG_ABOVE
    for sample in swept.cells[cells[1]].samples:
        above = sample.arms[Arm.RELOAD_SHIPPED]
        assert above.cached_tokens == 256
        assert above.logprob_drift < sweep_table.EQUAL_BELOW


def test_axis_of_cache_modes_shows_the_price_of_align(tmp_path: Path) -> None:
    """vLLM 0.28 recomputes both chunks in mode `align`, one in mode `all`."""
    profile = replace(TINY, samples=2, cell_seconds=0.0, chunks=(2,))
    every, align = axes.run("cache-mode", profile, tmp_path, seed=0)
    assert (every.value, align.value) == ("all", "align")
    for point, tokens in ((every, 128), (align, 256)):
        assert point.outputs is not None and point.recomputed_tokens is not None
        assert point.outputs[Arm.RELOAD_SHIPPED] is Verdict.EQUAL
        assert point.outputs[Arm.RELOAD_UNALIGNED] is Verdict.WRONG
        assert point.recomputed_tokens[Arm.RELOAD_SHIPPED] == tokens
        assert point.recomputed_tokens[Arm.RELOAD_UNALIGNED] == 1
        assert record.read(point.place).header.provenance.cache_mode == point.value


def test_value_that_cannot_run_does_not_stop_the_axis(tmp_path: Path) -> None:
    profile = replace(TINY, samples=1, cell_seconds=0.0, chunks=(2,), context=2 * 512 + 16)
    points = list(axes.run("blocks-per-chunk", profile, tmp_path, seed=0))
    assert [point.value for point in points] == ["1", "2", "4"]
    assert [point.chunk for point in points] == [128, 256, None]
    assert "needs" in points[2].error and "context holds 1040" in points[2].error


def test_unknown_axis_is_answered_with_the_known_ones() -> None:
    with pytest.raises(FixcostError, match="no axis 'colour'; choose one of architecture, blocks"):
        axes.values("colour", TINY)


@pytest.mark.parametrize(("architecture", "blind"), [("nemotron-h", False), ("falcon-h1", True)])
def test_low_precision_gets_a_verdict_only_where_noise_leaves_one(
    tmp_path: Path, architecture: str, blind: bool
) -> None:
    """In bfloat16 the corruption of Falcon-H1 is as small as rounding, that of NemotronH is not."""
    coarse = replace(
        TINY,
        architecture=architecture,
        dtype="bfloat16",
        state_dtype="bfloat16",
        samples=3,
        cell_seconds=0.0,
    )
    swept = sweep.run(coarse, grid([2]), tmp_path / "swept", seed=0)
    oracle = swept.header.oracle
    assert oracle is not None
    assert oracle.floor > 1e-3
    assert not oracle.tokens_count
    assert bool(oracle.blind) == blind
    outputs = {arm: verdict.judge(swept.cells[BOUNDARY], arm, oracle) for arm in RELOAD_ARMS}
    if blind:
        assert "at bfloat16" in oracle.blind
        assert set(outputs.values()) == {Verdict.CANNOT_TELL}
    else:
        assert outputs.pop(Arm.RELOAD_UNALIGNED) is Verdict.WRONG
        assert set(outputs.values()) == {Verdict.EQUAL}


def test_model_without_mamba_layers_is_refused(tmp_path: Path) -> None:
    """A real attention-only checkpoint, started for real."""
    folder = tmp_path / "attention-only"
    folder.mkdir()
    checkpoint.write(folder, architectures.nemotron_h("*-*-"))
    with (
        pytest.raises(FixcostError, match=r"not a hybrid model|cannot serve"),
        engine.start(replace(TINY, model=str(folder))),
    ):
        pass


def test_groups_with_different_chunks_are_refused() -> None:
    assert common_chunk([128, 128, 128]) == 128
    with pytest.raises(FixcostError, match=r"chunks of \[128, 256\] tokens"):
        common_chunk([128, 256, 128])


def test_prompt_that_does_not_fit_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(FixcostError, match=r"2624 tokens .* context holds 2048"):
        sweep.run(
            replace(TINY, samples=1, cell_seconds=0.0), grid([20]), tmp_path / "swept", seed=0
        )
    assert not (tmp_path / "swept").exists()


def test_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "free_memory", lambda: 100 << 20)
    with pytest.raises(FixcostError, match="needs 512 MiB of host memory and 100 MiB are free"):
        engine.check_memory(TINY)


def test_missing_vllm_is_one_sentence(tmp_path: Path) -> None:
    """A real Python that has every installed package but vLLM."""
    for package in Path(sysconfig.get_path("platlib")).iterdir():
        if not package.name.startswith("vllm"):
            (tmp_path / package.name).symlink_to(package)
    root = Path(__file__).parents[1]
    refused = subprocess.run(
        [sys.executable, "-S", "-c", "from harness.cli import main; main()", "sweep"],
        env={**os.environ, "PYTHONPATH": f"{root}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("fixcost: vLLM is not installed")
    assert "Traceback" not in refused.stderr


def test_missing_private_name_names_the_supported_versions() -> None:
    said = r"This vLLM \(0\.28\.0\) has no .*renamed_away; .* works with vLLM 0\.27 to 0\.32"
    with pytest.raises(FixcostError, match=said):
        vllm_names.lookup(vllm_names.OFFLOADING_SCHEDULER, "renamed_away")
    with pytest.raises(FixcostError, match=r"has no vllm\.no_such_module"):
        vllm_names.lookup("vllm.no_such_module")


def test_missing_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    chosen = profiles.choose("cpu-tiny", str(tmp_path))
    with pytest.raises(FixcostError, match="cannot serve"), engine.start(chosen):
        pass
