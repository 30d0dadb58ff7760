"""What to run where: a profile is a model, its engine's settings and the extent of its sweep."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from harness import checkpoint, midsize, nvml
from harness.errors import FixcostError
from harness.vocabulary import CacheMode

PROFILE_VARIABLE = "FIXCOST_PROFILE"
MODEL_VARIABLE = "FIXCOST_MODEL"
SAMPLES_VARIABLE = "FIXCOST_SAMPLES"
GIB = 1 << 30
MINIMUM_PAIRS = 12
"""Samples of a cell below which its figures are marked as not to be trusted."""


@dataclass(frozen=True)
class Profile:
    """One line of the table of profiles. Sizes in tokens or bytes."""

    name: str
    device: str
    """"cpu" or "cuda"."""
    model: str | None
    """A local checkpoint folder or a hub name; None is an embedded checkpoint."""
    architecture: str
    """Which one (`architectures`)."""
    dtype: str
    state_dtype: str
    cache_mode: CacheMode
    blocks_per_chunk: int
    chunks: tuple[int, ...]
    samples: int
    """Samples in each cell, at least."""
    half_width: float
    """A cell goes on until the interval of its fix cost is this narrow (0.03: 3 % to each side)."""
    cell_seconds: float
    """Or until so much time is used up; 0 ends every cell after `samples`."""
    output_tokens: int
    """Greedy tokens compared per request."""
    context: int
    """Tokens for prompt and output together."""
    host_bytes: int
    """Host memory for offloaded chunks."""
    device_bytes: int | None
    """Device cache; None leaves it to the memory share."""
    memory_share: float | None
    """Share of the GPU's memory that the engine may take; None on a CPU."""
    energy_seconds: float
    """For the energy of a cell, where there is a meter."""
    enforce_eager: bool = True
    """False: decoding by CUDA graphs."""
    tensor_parallel_size: int = 1

    @property
    def gpus(self) -> int:
        """How many the engine uses."""
        return self.tensor_parallel_size if self.device == "cuda" else 0


_TINY = Profile(
    name="cpu-tiny",
    device="cpu",
    model=None,
    architecture="nemotron-h",
    dtype="float32",
    state_dtype="float32",
    cache_mode=CacheMode.ALL,
    blocks_per_chunk=1,
    chunks=(2, 3, 4, 8),
    samples=MINIMUM_PAIRS,
    half_width=0.03,
    cell_seconds=1.0,
    output_tokens=2,
    context=2048,
    host_bytes=GIB // 4,
    device_bytes=GIB // 4,
    memory_share=None,
    energy_seconds=3.0,
)
_NEMOTRON = Profile(
    name="nemotron-nano-9b-v2",
    device="cuda",
    model="nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    architecture="nemotron-h",
    dtype="bfloat16",
    state_dtype="float32",
    cache_mode=CacheMode.ALL,
    blocks_per_chunk=1,
    chunks=(2, 3, 4, 8),
    samples=MINIMUM_PAIRS,
    half_width=0.03,
    cell_seconds=60.0,
    output_tokens=32,
    context=16384,
    host_bytes=16 * GIB,
    device_bytes=None,
    memory_share=0.85,
    energy_seconds=60.0,
    enforce_eager=False,
)
_MIDSIZE = replace(
    _NEMOTRON,
    name="gpu-1b",
    model=None,
    architecture=midsize.NAME,
    cell_seconds=10.0,
    energy_seconds=30.0,
    context=8192,
    host_bytes=8 * GIB,
    memory_share=0.5,
)
PROFILES = {
    profile.name: profile
    for profile in (
        _TINY,
        replace(_TINY, name="cpu-granite", architecture="granite-moe-hybrid"),
        replace(_TINY, name="cpu-falcon-h1", architecture="falcon-h1"),
        replace(_TINY, name="cpu-mamba2", architecture="mamba2"),
        replace(_TINY, name="cpu-mamba1", architecture="mamba1"),
        _NEMOTRON,
        replace(_NEMOTRON, name="nemotron-nano-9b-v2-eager", enforce_eager=True),
        _MIDSIZE,
        replace(_MIDSIZE, name="gpu-1b-eager", enforce_eager=True),
    )
}


def choose(
    name: str | None = None, model: str | None = None, samples: int | None = None
) -> Profile:
    """The profile to run: by option, else by environment variable, else by what the machine has.

    Args:
        name: a name of `PROFILES`, or None for `FIXCOST_PROFILE`.
        model: a checkpoint folder to put in place of the profile's model, or None for
            `FIXCOST_MODEL`.
        samples: samples of every cell, no more and no fewer, or None for `FIXCOST_SAMPLES`.

    Raises:
        FixcostError: there is no such profile, `model` is no folder with a `config.json`, or
            `samples` is no number above 0.
    """
    name = name or os.environ.get(PROFILE_VARIABLE)
    model = model or os.environ.get(MODEL_VARIABLE)
    if not name:
        name = "nemotron-nano-9b-v2" if nvml.names() else "cpu-tiny"
    if name not in PROFILES:
        raise FixcostError(f"There is no profile {name!r}; choose one of {', '.join(PROFILES)}.")
    profile = PROFILES[name]
    if wanted := os.environ.get(SAMPLES_VARIABLE):
        profile = replace(profile, samples=_samples(wanted), cell_seconds=0.0)
    if samples:
        profile = replace(profile, samples=samples, cell_seconds=0.0)
    if not model:
        return profile
    if not (Path(model) / "config.json").is_file():
        raise FixcostError(f"{model} holds no config.json: name the folder of a checkpoint.")
    return replace(profile, model=str(Path(model).resolve()))


def _samples(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise FixcostError(f"{SAMPLES_VARIABLE} must be a number above 0, not {text!r}.")
    return int(text)


def check_device(profile: Profile) -> None:
    """Refuse a profile that this machine cannot run.

    Raises:
        FixcostError: it needs an NVIDIA GPU and there is none.
    """
    if profile.device == "cuda" and not nvml.names():
        raise FixcostError(
            f"Profile {profile.name} needs an NVIDIA GPU and its driver, and this machine shows "
            f"none; run profile cpu-tiny instead."
        )


def model_path(profile: Profile) -> str:
    """Where the profile's checkpoint is; the embedded one is made if need be."""
    if profile.model is not None:
        return profile.model
    return str(checkpoint.embedded(profile.architecture))


def engine_environment(profile: Profile) -> dict[str, str]:
    """Environment variables that vLLM must see before it is imported.

    The scheduler stays in this process so that the alignment can be switched between requests.
    """
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }
    if profile.gpus > 1:
        environment["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # to ask each rank for what it has
    if profile.model is None or Path(profile.model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    return environment


def engine_arguments(profile: Profile) -> dict[str, object]:
    """The arguments of `vllm.LLM` for this profile (DESIGN: float32 state, mode, connector)."""
    host: dict[str, object] = {"cpu_bytes_to_use": profile.host_bytes}
    if profile.device == "cpu":
        host |= {"spec_name": "HostOffloadingSpec", "spec_module_path": "harness.cpu.offload"}
    if profile.blocks_per_chunk != 1:
        host["blocks_per_chunk"] = profile.blocks_per_chunk
    arguments: dict[str, object] = {
        "model": model_path(profile),
        "skip_tokenizer_init": True,
        "use_tqdm_on_load": False,
        "dtype": profile.dtype,
        "mamba_cache_dtype": profile.state_dtype,
        "mamba_ssm_cache_dtype": profile.state_dtype,
        "mamba_cache_mode": profile.cache_mode.value,
        "enable_prefix_caching": True,
        "max_model_len": profile.context,
        "max_num_batched_tokens": profile.context,
        "max_num_seqs": 1,
        "enforce_eager": profile.enforce_eager,
        "tensor_parallel_size": profile.tensor_parallel_size,
        "disable_log_stats": False,
        "max_logprobs": -1,
        "seed": 0,
        "kv_transfer_config": {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": host,
        },
    }
    if profile.device_bytes is not None:
        arguments["kv_cache_memory_bytes"] = profile.device_bytes
    if profile.memory_share is not None:
        arguments["gpu_memory_utilization"] = profile.memory_share
    return arguments
