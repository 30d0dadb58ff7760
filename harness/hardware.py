"""What the machine has: cores that are free for us, memory, GPUs."""

import os
from functools import cache
from pathlib import Path

import psutil


@cache
def gpu_names() -> tuple[str, ...]:
    """The NVIDIA GPUs that the driver shows; empty without a driver. Asked once per process."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    finally:
        pynvml.nvmlShutdown()


def cores() -> list[int]:
    """The cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def cpu_name() -> str:
    """The processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def free_memory() -> int:
    """Bytes of host memory that can be had without swapping."""
    available: int = psutil.virtual_memory().available
    return available


def load_average() -> float:
    """The load of the last minute, in runnable tasks."""
    return os.getloadavg()[0]
