"""What the machine has: cores that are free for us, memory, GPUs."""

import os
from pathlib import Path

import psutil

_LOOK_SECONDS = 0.5
_BUSY_PERCENT = 50.0


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


def frequency() -> float | None:
    """The clock of the processor in MHz, mean over the cores; None where it cannot be read."""
    found = psutil.cpu_freq()
    return float(found.current) if found and found.current else None


def idle_cores() -> list[int]:
    """Of the cores that this process may run on, those that nobody else keeps busy.

    Measured over a moment; all of them if every one is busy.
    """
    busy = psutil.cpu_percent(interval=_LOOK_SECONDS, percpu=True)
    allowed = cores()
    return [core for core in allowed if busy[core] < _BUSY_PERCENT] or allowed


def load_average() -> float:
    """The load of the last minute, in runnable tasks."""
    return os.getloadavg()[0]
