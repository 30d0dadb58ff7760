"""What went wrong inside the engine, and what to do about it, in one sentence."""

from harness.errors import FixcostError

_KNOWN = {
    "out of memory": "The GPU has too little free memory: stop what else runs on it, or choose a "
    "profile with a smaller model.",
    "no available memory for the cache blocks": "The GPU has too little free memory for the cache: "
    "stop what else runs on it, or choose a profile with a smaller model.",
    "less than desired gpu memory utilization": "Other programs hold the GPU's memory: stop them "
    "(nvidia-smi shows them).",
    "ecc error": "The GPU's memory had an error that ECC could not correct: have it checked "
    "(nvidia-smi -q -d ECC).",
    "fallen off the bus": "The GPU has fallen off the bus: `dmesg` shows why, and only a restart "
    "brings it back.",
    "gpu is lost": "The GPU has fallen off the bus: `dmesg` shows why, and only a restart brings "
    "it back.",
    "device-side assert": "A kernel failed on the GPU; CUDA_LAUNCH_BLOCKING=1 shows which.",
    "illegal memory access": "A kernel failed on the GPU; CUDA_LAUNCH_BLOCKING=1 shows which.",
    "unspecified launch failure": "A kernel failed on the GPU; CUDA_LAUNCH_BLOCKING=1 shows which.",
    "no cuda-capable device": "CUDA sees no GPU; CUDA_VISIBLE_DEVICES may hide it.",
    "busy or unavailable": "The GPU is in exclusive use by another program: wait for it, or stop "
    "it.",
    "driver version is insufficient": "The NVIDIA driver is too old for this torch: update it.",
    "no space left on device": "/dev/shm is too small for the offload region: enlarge it "
    "(mount -o remount,size=... /dev/shm).",
}
_SHOWN = 300


def explained(error: BaseException, doing: str) -> FixcostError:
    """The error for the user of one that came out of vLLM, torch or the driver.

    Args:
        error: what was raised.
        doing: what the engine was to do, as the beginning of a sentence.
    """
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:_SHOWN]}"
    advice = next((tip for sign, tip in _KNOWN.items() if sign in _texts(error)), "")
    return FixcostError(f"{doing}: {advice} ({said})" if advice else f"{doing}: {said}")


def _texts(error: BaseException | None) -> str:
    """All that was said by the error and by those that led to it, in lower case."""
    said = []
    while error is not None:
        said.append(f"{type(error).__name__} {error}")
        error = error.__cause__ or error.__context__
    return " ".join(said).lower()
