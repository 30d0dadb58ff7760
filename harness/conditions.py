"""What the machine did beside a sample: other programs, the hypervisor, the clock."""

import time
from dataclasses import dataclass

import psutil

from harness import hardware
from harness.record import Conditions

BURST_CORES = 0.5
"""Cores busy with other programs from which on a sample is marked. The kernel counts in ticks of
10 ms, so over a sample of 0.1 s less could be the counting alone."""
BURST_STEAL = 0.1
"""The same for cores withheld by the hypervisor."""


@dataclass(frozen=True)
class Snapshot:
    """Seconds that have gone by at one moment."""

    clock: float
    others: float
    """Of all cores, busy with anything but this process."""
    steal: float


def snapshot() -> Snapshot:
    """This moment."""
    spent = psutil.cpu_times()
    own = psutil.Process().cpu_times()
    busy = spent.user + spent.nice + spent.system + spent.irq + spent.softirq
    return Snapshot(time.monotonic(), busy - own.user - own.system, spent.steal)


def since(began: Snapshot) -> Conditions:
    """What happened from `began` to now."""
    ended = snapshot()
    seconds = max(ended.clock - began.clock, 1e-3)
    background = max(0.0, ended.others - began.others) / seconds
    steal = (ended.steal - began.steal) / seconds
    return Conditions(
        load_average=hardware.load_average(),
        frequency=hardware.frequency(),
        background=background,
        steal=steal,
        burst=background > BURST_CORES or steal > BURST_STEAL,
    )
