"""Where figures come from: versions, commit, model, machine."""

import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from harness import checkpoint, hardware, nvml, profiles, vllm_names
from harness.profiles import Profile
from harness.record import Provenance


def collect(profile: Profile, commit: str | None) -> Provenance:
    """The provenance of a sweep that is about to start; torch is loaded by then.

    Args:
        profile: what is run.
        commit: the subject's commit whose Python lies over the installed vLLM, or None.
    """
    import torch

    model = profiles.model_path(profile)
    return Provenance(
        fixcost=metadata.version("fixcost"),
        vllm=vllm_names.installed_version() or "unknown",
        torch=str(torch.__version__),
        python=platform.python_version(),
        commit=commit,
        profile=profile.name,
        model=profile.model or "embedded",
        model_digest=checkpoint.digest(Path(model)) if Path(model).is_dir() else None,
        dtype=profile.dtype,
        state_dtype=profile.state_dtype,
        cache_mode=profile.cache_mode,
        blocks_per_chunk=profile.blocks_per_chunk,
        host=platform.node(),
        cpu=hardware.cpu_name(),
        cores=tuple(hardware.cores()),
        threads=torch.get_num_threads(),
        gpus=nvml.names(),
        started=now(),
        load_average=hardware.load_average(),
        ranks=max(profile.gpus, 1),
    )


def now() -> str:
    """This moment, ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
