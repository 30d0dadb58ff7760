"""Figures out of samples: one a sample, two alignments always paired within it."""

import zlib

from harness.record import CellResult, Header, Sample
from harness.vocabulary import Arm


def identity(header: Header) -> int:
    """A checksum over what was run and on what: figures with different ones have no common unit."""
    origin = header.provenance
    parts = (
        *(origin.profile, origin.model_digest or origin.model, origin.dtype, origin.state_dtype),
        *(origin.cache_mode, origin.blocks_per_chunk, header.chunk, header.output_tokens),
        *(origin.cpu, *origin.gpus),
        *((origin.ranks,) if origin.ranks != 1 else ()),  # else as before there were ranks
    )
    return zlib.crc32(repr(parts).encode())


def values(result: CellResult, arm: Arm, metric: str) -> list[float]:
    """One figure a sample, in the order of the samples; `metric` is a field of `ArmResult`."""
    return [float(getattr(sample.arms[arm], metric)) for sample in result.samples]


def fix_costs(result: CellResult) -> list[float]:
    """TTFT of `reload/aligned` over TTFT of `reload/unaligned`, one ratio a sample."""
    return [fix_cost(sample) for sample in result.samples]


def fix_cost(sample: Sample) -> float:
    """TTFT of `reload/aligned` over TTFT of `reload/unaligned`."""
    return sample.arms[Arm.RELOAD_ALIGNED].ttft / sample.arms[Arm.RELOAD_UNALIGNED].ttft


def noise(result: CellResult) -> list[float]:
    """TTFT of the A/A arm over TTFT of `reload/aligned`: what would be 1 on a perfect machine."""
    return [
        sample.arms[Arm.RELOAD_ALIGNED_AGAIN].ttft / sample.arms[Arm.RELOAD_ALIGNED].ttft
        for sample in result.samples
    ]


def order_effects(result: CellResult) -> list[float]:
    """The same two, the one served later over the one served earlier."""
    return [
        ratio if _comes_first(sample, Arm.RELOAD_ALIGNED) else 1 / ratio
        for sample, ratio in zip(result.samples, noise(result), strict=True)
    ]


def _comes_first(sample: Sample, arm: Arm) -> bool:
    return sample.order.index(arm) < sample.order.index(Arm.RELOAD_ALIGNED_AGAIN)
