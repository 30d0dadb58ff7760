"""What stands against believing a run: its faults, and the noise it was taken in."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from harness import estimate, gpu_trust, numbers, verdict
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.profiles import MINIMUM_PAIRS
from harness.record import CellResult, Clocks, Record, Sample
from harness.vocabulary import Ended
from harness.wording import percent

FALSE_ALARM = 0.001
"""How often a perfect instrument may fail the A/A test."""
NOTICEABLE_CORES = 0.1
NOTICEABLE_STEAL = 0.02
NOTICEABLE_CLOCK = 0.05
SLOWEST, FASTEST = 0.5, 1.05
"""Between these shares of a whole request of one token, its time to the first token must lie."""


@dataclass(frozen=True)
class Instrument:
    """What the A/A arm says of this run."""

    noise: Estimate
    """The second of two identical arms over the first: 1 on a perfect machine."""
    order: Estimate
    """The one served later over the one served earlier."""
    bursts: int
    """Samples that are marked because the machine was disturbed."""
    samples: int


def instrument(results: Iterable[CellResult]) -> Instrument:
    """Pool the A/A arm of all cells."""
    results = list(results)
    samples = [sample for result in results for sample in result.samples]
    return Instrument(
        noise=estimate.pooled(map(numbers.noise, results)),
        order=estimate.pooled(map(numbers.order_effects, results)),
        bursts=sum(sample.conditions.burst for sample in samples),
        samples=len(samples),
    )


def faults(record: Record) -> list[str]:
    """Why the figures of this record are not to be trusted, a sentence each; empty if they are."""
    found = []
    try:
        verdict.check_control(record)
    except FixcostError as error:
        found.append(str(error))
    pairs = [one for result in record.cells.values() for one in numbers.noise(result)]
    if pairs and estimate.differ(pairs) < FALSE_ALARM:
        seen = estimate.ratio(pairs)
        found.append(
            f"The A/A test failed: two identical arms differ by a factor of {seen.value:.3f} "
            f"({seen.low:.3f} to {seen.high:.3f})."
        )
    found += gpu_trust.faults(record)
    found += _clock_fault(record.header.clocks)
    few = [c.label for c, result in record.cells.items() if len(result.samples) < MINIMUM_PAIRS]
    if few:
        found.append(
            f"{len(few)} of {len(record.cells)} cells have fewer than {MINIMUM_PAIRS} pairs, "
            f"first [{few[0]}]."
        )
    return found


def _clock_fault(clocks: Clocks | None) -> list[str]:
    """A fault where vLLM's TTFT is not the time that went by."""
    if clocks is None:
        return []
    others = [clocks.host, *([] if clocks.device is None else [clocks.device])]
    if all(SLOWEST * other <= clocks.ttft <= FASTEST * other for other in others):
        return []
    said = " and ".join(f"{other * 1e3:.1f} ms" for other in others)
    return [
        f"vLLM gives {clocks.ttft * 1e3:.1f} ms to the first token of requests that took {said} "
        f"by the clocks of the host and the GPU: its metric cannot be believed here."
    ]


def advice(record: Record) -> list[str]:
    """One sentence for each thing that made this run noisy, and what to do about it."""
    samples = [sample for result in record.cells.values() for sample in result.samples]
    if not samples:
        return []
    header = record.header
    found = []

    def mean(of: Callable[[Sample], float]) -> float:
        return fmean(map(of, samples))

    if (busy := mean(lambda sample: sample.conditions.background)) > NOTICEABLE_CORES:
        found.append(
            f"Other programs kept {busy:.2g} cores busy on average: stop them while you measure."
        )
    if (stolen := mean(lambda sample: sample.conditions.steal)) > NOTICEABLE_STEAL:
        found.append(
            f"The hypervisor withheld {stolen:.2g} cores on average: use a machine with cores of "
            f"its own, or a quieter hour."
        )
    clocks = [s.conditions.frequency for s in samples if s.conditions.frequency]
    if clocks and min(clocks) < max(clocks) * (1 - NOTICEABLE_CLOCK):
        found.append(
            f"The clock varied between {min(clocks):.0f} and {max(clocks):.0f} MHz: choose the "
            f"performance governor (cpupower frequency-set -g performance)."
        )
    if not header.settled:
        found.append(
            f"Times were still falling after {header.warm_up} samples of warm-up: run it again."
        )
    found += gpu_trust.advice(record)
    void = [reason for result in record.cells.values() for reason in result.void]
    if void:
        found.append(f"{len(void)} samples were void and taken again, the first because {void[0]}.")
    late = sum(result.ended is Ended.TIME for result in record.cells.values())
    if late:
        found.append(
            f"{late} of {len(record.cells)} cells used up their {header.cell_seconds:g} s before "
            f"the interval was within {percent(header.half_width)}: give them more "
            f"(--cell-seconds)."
        )
    return found
