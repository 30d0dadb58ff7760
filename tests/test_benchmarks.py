"""The benchmarks themselves, called as asv calls them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import align, common, reload, scheduler
from harness import record
from harness.record import Record


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, shipped_record: Record) -> Path:
    folder = tmp_path_factory.mktemp("place")
    record.write_header(folder, shipped_record.header)
    for result in shipped_record.cells.values():
        record.write_cell(folder, result)
    return folder


def test_wrong_output_has_no_speed(place: Path) -> None:
    benchmark = reload.Reload()
    benchmark.setup(place, "reload/unaligned", "repeat", "0", 2)
    for track in (benchmark.track_ttft, benchmark.track_reload_time):
        with pytest.raises(common.WrongOutputError, match="reload/unaligned, repeat, 2 chunks 0"):
            track(place)
    assert benchmark.track_wrong_tokens()["samples"][0] > 0  # type: ignore[index]
    assert benchmark.track_reload_bytes()["samples"] == [411_648.0] * 3


def test_right_output_has_one(place: Path) -> None:
    benchmark = reload.Reload()
    benchmark.setup(place, "reload/unaligned", "repeat", "+1", 2)
    answer = benchmark.track_ttft(place)
    assert answer["number"] == 1 and len(answer["samples"]) == 3  # type: ignore[arg-type]


def test_cell_that_the_profile_leaves_out_is_skipped(place: Path) -> None:
    with pytest.raises(NotImplementedError):
        reload.Reload().setup(place, "cold", "repeat", "0", 7)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (reload.Reload, ("cold", "repeat", "0", 2)),
        (reload.Energy, ("cold", "repeat", "0", 2)),
        (reload.FixCost, ("repeat", "0", 2)),
        (reload.EnergyFixCost, ("repeat", "0", 2)),
        (reload.Start, ("repeat", "0", 2)),
        (reload.Run, ()),
        (align.Reload, ("cold", "repeat", "0", 2)),
        (align.FixCost, ("repeat", "0", 2)),
        (align.Start, ("repeat", "0", 2)),
        (align.Run, ()),
    ],
)
def test_mode_that_a_release_does_not_have_is_skipped_not_failed(
    tmp_path: Path, kind: Any, parameters: tuple[object, ...]
) -> None:
    """asv takes `NotImplementedError` for "not applicable" in `setup` alone."""
    with pytest.raises(NotImplementedError, match="no such Mamba cache mode"):
        kind().setup(tmp_path, *parameters)


def test_both_modes_have_caches_of_their_own() -> None:
    shared = {
        (c.setup_cache.__code__.co_filename, c.setup_cache.__code__.co_firstlineno)
        for c in (reload.Reload, reload.FixCost, reload.Start, reload.Run)
    }
    own = {
        (c.setup_cache.__code__.co_filename, c.setup_cache.__code__.co_firstlineno)
        for c in (align.Reload, align.FixCost, align.Start, align.Run)
    }
    assert len(shared) == len(own) == 1 and shared.isdisjoint(own)


def test_parameters_do_not_depend_on_the_machine() -> None:
    arms, scenarios, offsets, chunks = common.ARM_PARAMS
    assert arms == ["cold", "gpu_hit", "reload/shipped", "reload/aligned", "reload/unaligned"]
    assert (scenarios, offsets) == (["repeat", "extended"], ["-1", "0", "+1", "+half"])
    assert chunks == [2, 3, 4, 8]


@pytest.mark.parametrize("chunks", scheduler.Lookup.params)
def test_lookup_is_timed_on_a_full_hit(chunks: int) -> None:
    benchmark = scheduler.Lookup()
    benchmark.setup(chunks)
    benchmark.time_lookup(chunks)
    found = benchmark.connector.get_num_new_matched_tokens(benchmark.prompt, 0)
    assert found == (16 * chunks, True)


def test_alignment_is_the_chunk() -> None:
    benchmark = scheduler.Alignment()
    benchmark.setup()
    benchmark.time_resolve_mamba_align_size()
    assert benchmark.resolve(*benchmark.arguments) == 16


def test_discovery_imports_neither_vllm_nor_torch() -> None:
    script = (
        "import sys, benchmarks.align, benchmarks.reload, benchmarks.scheduler, harness.cli\n"
        "print([name for name in ('vllm', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
