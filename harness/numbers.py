"""Figures out of samples: medians, paired ratios, and how sure each is.

Times on a shared machine have heavy tails and drift, so nothing here assumes a distribution:
every estimate is a median, its interval comes from order statistics (the inverted sign test,
`scipy.stats.quantile_test`; Conover, Practical Nonparametric Statistics, 3rd ed., ch. 3.2), and
two alignments are compared by the log ratio within a sample, never by two separate averages.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness.record import CellResult
from harness.vocabulary import Arm

CONFIDENCE = 0.95

METRICS: dict[str, str] = {
    "ttft": "seconds",
    "reload_bytes": "bytes",
    "reload_time": "seconds",
    "recomputed_tokens": "tokens",
    "wrong_tokens": "tokens",
    "logprob_drift": "nats",
}
"""What is measured of every arm, and its unit; the names are fields of `ArmResult`."""


@dataclass(frozen=True)
class Estimate:
    """A median and its 95 % interval; the interval is infinite where the samples are too few."""

    value: float
    low: float
    high: float
    count: int
    """Samples, or pairs for a ratio."""


def values(result: CellResult, arm: Arm, metric: str) -> list[float]:
    """One figure a sample, in the order of the samples; `metric` is one of `METRICS`."""
    return [float(getattr(sample.arms[arm], metric)) for sample in result.samples]


def fix_costs(result: CellResult) -> list[float]:
    """TTFT of `reload/aligned` over TTFT of `reload/unaligned`, one ratio a sample."""
    return [
        sample.arms[Arm.RELOAD_ALIGNED].ttft / sample.arms[Arm.RELOAD_UNALIGNED].ttft
        for sample in result.samples
    ]


def fix_cost(result: CellResult) -> Estimate:
    """The fix cost of a cell."""
    return ratio(fix_costs(result))


def median(samples: Sequence[float]) -> Estimate:
    """The median of at least one sample."""
    outcome = stats.quantile_test(samples, q=float(np.median(samples)), p=0.5)
    low, high = outcome.confidence_interval(CONFIDENCE)
    return Estimate(
        value=float(np.median(samples)),
        low=-math.inf if math.isnan(low) else float(low),
        high=math.inf if math.isnan(high) else float(high),
        count=len(samples),
    )


def ratio(ratios: Sequence[float]) -> Estimate:
    """The median of ratios, taken in logarithms so that a and 1/a weigh the same."""
    logs = median(np.log(ratios).tolist())
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.count)


def pooled(ratios: Iterable[Sequence[float]]) -> Estimate:
    """One estimate over the ratios of several cells in which the same is expected."""
    return ratio([one for cell in ratios for one in cell])
