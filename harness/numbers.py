"""Figures out of samples: one a sample, two alignments always paired within it."""

from harness.record import CellResult
from harness.vocabulary import Arm


def values(result: CellResult, arm: Arm, metric: str) -> list[float]:
    """One figure a sample, in the order of the samples; `metric` is a field of `ArmResult`."""
    return [float(getattr(sample.arms[arm], metric)) for sample in result.samples]


def fix_costs(result: CellResult) -> list[float]:
    """TTFT of `reload/aligned` over TTFT of `reload/unaligned`, one ratio a sample."""
    return [
        sample.arms[Arm.RELOAD_ALIGNED].ttft / sample.arms[Arm.RELOAD_UNALIGNED].ttft
        for sample in result.samples
    ]
