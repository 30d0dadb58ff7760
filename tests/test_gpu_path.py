"""What a run on GPUs needs, as far as it can be checked without one."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import release_process

from harness import (
    architectures,
    bandwidth,
    block_size,
    checkpoint,
    conclusion,
    engine_errors,
    midsize,
    profiles,
    protocol,
    release_table,
    releases,
    sweep,
    trust,
)
from harness.cells import Cell, grid
from harness.errors import FixcostError
from harness.profiles import PROFILES
from harness.protocol import VoidSampleError
from harness.record import Bandwidth, Clocks, Gpu, Record
from harness.vocabulary import Offset, Scenario

GPU_PROFILES = [profile for profile in PROFILES.values() if profile.device == "cuda"]
NEMOTRON_NANO_9B_V2 = {
    "chunk_size": 128,
    "conv_kernel": 4,
    "head_dim": 128,
    "mamba_head_dim": 80,
    "mamba_num_heads": 128,
    "n_groups": 8,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
}
"""Of nvidia/NVIDIA-Nemotron-Nano-9B-v2, what decides the block."""
CELL = Cell(Scenario.REPEAT, 2, Offset.EXACT)


# The block.


def test_block_of_the_reports_own_model() -> None:
    derive = block_size.tokens_per_block
    cuda = block_size.CUDA_ALIGNMENT
    assert derive(NEMOTRON_NANO_9B_V2, "bfloat16", "float32", cuda) == 1408
    assert derive(NEMOTRON_NANO_9B_V2, "bfloat16", "bfloat16", cuda) == 768
    with pytest.raises(FixcostError, match="has no num_key_value_heads: it is no NemotronH"):
        derive({}, "bfloat16", "float32", cuda)


def test_block_is_what_a_real_engine_has(shipped_record: Record) -> None:
    tiny = architectures.ARCHITECTURES["nemotron-h"].configuration
    derived = block_size.tokens_per_block(tiny, "float32", "float32", block_size.CPU_ALIGNMENT)
    assert derived == shipped_record.header.chunk == 128


def test_longest_prompts_fit_the_context() -> None:
    for profile in GPU_PROFILES:
        made = profile.architecture == midsize.NAME
        chunk = profile.blocks_per_chunk * block_size.tokens_per_block(
            midsize.CONFIGURATION if made else NEMOTRON_NANO_9B_V2,
            profile.dtype,
            profile.state_dtype,
            block_size.CUDA_ALIGNMENT,
        )
        longest = max(cell.prompt_length(chunk) for cell in grid(profile.chunks))
        assert longest + protocol.extra_tokens(chunk, profile.output_tokens) <= profile.context


# The checkpoint.


def test_midsize_weights_move_the_output() -> None:
    assert 1e9 < midsize.parameters() < 2e9
    bits = np.random.SFC64([midsize._SEED, 0])
    drawn = midsize._weights("backbone.layers.1.mixer.up_proj.weight", (512, 2048), bits)
    values = (drawn.astype(np.uint32) << 16).view(np.float32)
    assert 0.7 < float(np.sqrt(np.mean(values**2))) * np.sqrt(2048) < 1.42
    assert abs(float(values.mean())) < 0.01 * float(values.std())
    again = midsize._weights("x.mixer.up_proj.weight", (512, 2048), np.random.SFC64([51094, 0]))
    assert np.array_equal(drawn, again)


def test_midsize_weights_are_those_of_a_nemotron() -> None:
    tiny = architectures.nemotron_h(midsize.LAYERS).weights(architectures.Drawn())
    made = [name for part in midsize._parts() for name in part]
    assert sorted(made) == sorted(tiny)
    known = architectures.ARCHITECTURES["nemotron-h"].configuration
    assert set(known) == set(midsize.CONFIGURATION)
    assert midsize.NAME in checkpoint.DIGESTS


# Faults.


def test_void_samples_are_taken_again_but_not_for_ever(
    shipped_record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = shipped_record.cells[CELL].samples
    voided = 2
    asked: list[int] = []

    def take(*arguments: object) -> object:
        asked.append(int(str(arguments[3])))
        if len(asked) <= voided:
            raise VoidSampleError("nothing was stored")
        return good[0]

    class Stub:
        chunk = 128

    monkeypatch.setattr(protocol, "take", take)
    result = sweep._measure(Stub(), CELL, shipped_record.header)  # type: ignore[arg-type]
    assert len(result.samples) == shipped_record.header.samples
    assert result.void == ["nothing was stored"] * 2
    assert len(set(asked)) == len(asked) and asked[0] % 4 == asked[2] % 4
    found = replace(shipped_record, cells={**shipped_record.cells, CELL: result})
    assert any("2 samples were void and taken again" in said for said in trust.advice(found))
    asked.clear()
    voided = 1000
    with pytest.raises(FixcostError, match=r"Samples of \[repeat, 2 chunks 0\] are void: nothing"):
        sweep._measure(Stub(), CELL, shipped_record.header)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("CUDA error: uncorrectable ECC error encountered", "ECC could not correct"),
        ("NVML: GPU is lost", "fallen off the bus"),
        ("No available memory for the cache blocks", "too little free memory for the cache"),
        ("all CUDA-capable devices are busy or unavailable", "exclusive use by another program"),
        ("[Errno 28] No space left on device", "/dev/shm is too small"),
        ("CUDA error: device-side assert triggered", "CUDA_LAUNCH_BLOCKING=1"),
    ],
)
def test_faults_of_the_device_are_explained(said: str, advice: str) -> None:
    try:
        try:
            raise RuntimeError(said)
        except RuntimeError as error:
            raise ValueError("Engine core initialization failed.") from error
    except ValueError as error:
        explained = str(engine_errors.explained(error, "The engine failed"))
    assert advice in explained and explained.count("\n") == 0


# The record.


def test_clocks_agree_in_a_real_run(shipped_record: Record) -> None:
    clocks = shipped_record.header.clocks
    assert clocks is not None and clocks.device is None
    assert 0.5 * clocks.host < clocks.ttft < clocks.host
    assert not any("metric cannot be believed" in said for said in trust.faults(shipped_record))


def seen(shipped: Record, **changes: object) -> Record:
    return replace(shipped, header=replace(shipped.header, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("clocks", [Clocks(0.2, 0.1, None), Clocks(0.09, 0.1, 0.03)])
def test_clocks_that_disagree_are_a_fault(shipped_record: Record, clocks: Clocks) -> None:
    assert any(
        "its metric cannot be believed" in said
        for said in trust.faults(seen(shipped_record, clocks=clocks))
    )


def test_pageable_memory_marks_the_run(shipped_record: Record) -> None:
    rates = Bandwidth(pinned=55e9, pageable=12e9)
    gpu = Gpu("Stand-in H100", 5, 16, 16, ecc=True, sliced=False, others=0)
    pinned = seen(shipped_record, bandwidth=rates, pinned=True, gpus=[gpu])
    said = conclusion.of_record(pinned)
    assert "Host memory was pinned: reloads reached" in said
    assert "55.0 GB/s from pinned and 12.0 GB/s from pageable memory" in said
    assert "(PCIe generation 5, 16 lanes)" in said
    assert not any("PAGEABLE" in fault for fault in trust.faults(pinned))
    pageable = seen(shipped_record, bandwidth=rates, pinned=False, gpus=[gpu])
    assert any("PAGEABLE" in fault for fault in trust.faults(pageable))
    assert "Host memory was PAGEABLE" in conclusion.of_record(pageable)


def test_bytes_of_several_ranks_are_named_so(shipped_record: Record) -> None:
    origin = replace(shipped_record.header.provenance, ranks=2)
    two = seen(shipped_record, bandwidth=Bandwidth(5e10, 1e10), pinned=True, provenance=origin)
    assert "all 2 ranks together" in conclusion.of_record(two)
    split = replace(PROFILES["nemotron-nano-9b-v2"], tensor_parallel_size=2)
    assert profiles.engine_arguments(split)["tensor_parallel_size"] == split.gpus == 2
    assert "VLLM_ALLOW_INSECURE_SERIALIZATION" in profiles.engine_environment(split)


def test_bandwidth_of_a_copy() -> None:
    rates = bandwidth.measure("cpu")
    assert 2e8 < rates.pageable < 1e12 and 0.2 < rates.pinned / rates.pageable < 5


# Releases, of which only the names and the arguments can be looked at.

LOOK = """
import json, sys
from dataclasses import fields
from vllm.config import CacheConfig
from vllm.engine.arg_utils import EngineArgs
from harness import engine, vllm_names

profiles = json.load(sys.stdin)
for arguments in profiles:
    EngineArgs(**arguments)
    CacheConfig(mamba_cache_mode=arguments["mamba_cache_mode"])
state = "vllm.distributed.kv_transfer.kv_transfer_state"
vllm_names.lookup(state, "get_kv_transfer_group")
vllm_names.lookup("vllm.entrypoints.llm", "LLM", "collective_rpc")
vllm_names.lookup("vllm.entrypoints.llm", "LLM", "reset_prefix_cache")
vllm_names.resolve_mamba_align_size()
vllm_names.offloading_classes()
vllm_names.weight_dispatch()
print(vllm_names.installed_version(), [field.name for field in fields(EngineArgs)].count("seed"))
"""


VERSIONS = ("0.28.0", "0.29.0", "0.30.0", "0.31.0")


@pytest.fixture(scope="module")
def looked() -> dict[str, "subprocess.CompletedProcess[str]"]:
    """What each release says, two at a time: most of it is importing."""
    folder = str(checkpoint.embedded("nemotron-h"))
    given = json.dumps(
        [profiles.engine_arguments(replace(profile, model=folder)) for profile in GPU_PROFILES]
    )
    for version in VERSIONS:
        releases.fetch(version)

    def look(version: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", LOOK],
            input=given,
            env=release_process.environment(version),
            capture_output=True,
            text=True,
            check=False,
        )

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(VERSIONS, pool.map(look, VERSIONS), strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_release_takes_our_arguments_and_has_our_names(
    version: str, looked: dict[str, "subprocess.CompletedProcess[str]"]
) -> None:
    answer = looked[version]
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert answer.stdout.split()[-2:] == [version, "1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_release_has_the_attributes_that_we_read(version: str) -> None:
    release = releases.fetch(version)
    offloading = release.folder / "vllm/distributed/kv_transfer/kv_connector/v1/offloading"
    for source, names in {
        offloading / "scheduler.py": [
            "self._mamba_align_size",
            "self._jobs",
            "self.config",
            "def update_connector_output(self, connector_output",
            "connector_output.kv_connector_worker_meta",
            "transfer_stats.load.bytes",
            "transfer_stats.load.time",
            "transfer_stats.store.bytes",
        ],
        offloading / "worker.py": ["self.worker"],
        release.folder / "vllm/v1/kv_offload/cpu/gpu_worker.py": [
            "self._load_handler",
            "self.src_tensors",
            "cudaHostRegister",
        ],
    }.items():
        text = source.read_text()
        assert [name for name in names if name not in text] == [], source


def test_digest_that_differs_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = release_table.read()
    others = [one for one in table.releases if one.version != "0.30.0"]
    wrong = release_table.Known("0.30.0", datetime.now(UTC), "0" * 64)
    changed = release_table.Table([*others, wrong], table.impossible)
    monkeypatch.setattr(release_table, "read", lambda: changed)
    with pytest.raises(FixcostError, match=r"0\.30\.0 cannot be had: its digest is not the one"):
        releases.fetch("0.30.0")
    assert releases.unpacked("0.30.0") is None
