"""How sure a figure is: medians and paired ratios with their intervals.

Times on a shared machine have heavy tails and drift, so nothing here assumes a distribution:
every estimate is a median and its interval comes from order statistics (the inverted sign test,
`scipy.stats.quantile_test`; Conover, Practical Nonparametric Statistics, 3rd ed., ch. 3.2).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A median and its 95 % interval; the interval is infinite where the samples are too few."""

    value: float
    low: float
    high: float
    count: int
    """Samples, or pairs for a ratio."""


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
