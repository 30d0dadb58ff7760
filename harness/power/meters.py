"""The meters of this machine: every energy counter that can be read, or why there is none."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness import nvml
from harness.errors import MeterError
from harness.power import rapl
from harness.power.counter import Counter
from harness.record import Gpu, GpuState, Meter

Source = Callable[[], Counter]


@dataclass(frozen=True)
class Meters:
    """What can be measured here. Without a counter it is the null meter, and says why."""

    counters: tuple[Counter, ...] = ()
    reason: str = ""
    """Why some energy, or all, is not measured; "" if all is."""
    handles: tuple[Any, ...] = field(default=(), repr=False)
    """NVML's, of the GPUs in use."""
    gpus: tuple[Gpu, ...] = ()
    """The same as they were found, before our own engine was on them."""
    started: tuple[GpuState, ...] = ()
    """Their state at that moment."""

    @property
    def period(self) -> float:
        """Seconds between two steps of the slowest counter; 0 without one."""
        return max((counter.period for counter in self.counters), default=0.0)

    @property
    def described(self) -> list[Meter]:
        """For the record."""
        return [Meter(counter.name, counter.period) for counter in self.counters]

    def states(self) -> list[GpuState]:
        """Temperature, clocks and the rest of each GPU in use, now."""
        return [nvml.state(handle) for handle in self.handles]


def find(gpus: int) -> Meters:
    """Open every energy counter: of `gpus` GPUs, the CPU packages and their memory.

    To be called before our own engine is on the GPUs. Takes a second or two where there is one,
    which is watched for how often it moves. A GPU that cannot be metered leaves no meter at all for
    a run on GPUs: the processor's share alone would be taken for the whole.
    """
    handles = nvml.used(gpus)
    counters: list[Counter] = []
    reasons: list[str] = []
    of_gpus = [_of_gpu(name, handle) for name, handle in handles]
    of_cpus = [_of_zone(zone) for zone in rapl.zones(rapl.ROOT)]
    for source in (*of_gpus, *of_cpus):
        try:
            counters.append(source())
        except MeterError as error:
            reasons.append(str(error))
    if gpus > len(handles):
        reasons.append(nvml.absence() or f"Only {len(handles)} of {gpus} GPUs are visible.")
    if not of_cpus:
        reasons.append(rapl.absence(rapl.ROOT))
    if sum(one.name.startswith("GPU") for one in counters) < gpus:
        counters = []
    found = tuple(handle for _, handle in handles)
    return Meters(
        counters=tuple(counters),
        reason=" ".join(reasons),
        handles=found,
        gpus=tuple(nvml.describe(handle) for handle in found),
        started=tuple(nvml.state(handle) for handle in found),
    )


def _of_gpu(name: str, handle: Any) -> Source:
    read = partial(nvml.energy, name, handle)
    return lambda: Counter(name, read, joules=nvml.JOULES, span=nvml.SPAN)


def _of_zone(zone: Path) -> Source:
    return lambda: Counter(
        rapl.name(zone), rapl.reader(zone), joules=rapl.JOULES, span=rapl.span(zone)
    )
