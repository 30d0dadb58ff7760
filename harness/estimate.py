"""How sure a figure is.

Times on a shared machine have heavy tails, bursts and drift, so nothing here is an average of all:

- A ratio of two arms is the 20 % trimmed mean of its paired log ratios, with the interval of Tukey
  and McLaughlin (Sankhya A 25, 1963; Wilcox, Introduction to Robust Estimation and Hypothesis
  Testing, 4th ed., ch. 4.3; `scipy.stats.mstats.trimmed_mean_ci`). Pairing takes out what slows a
  whole sample; trimming, what hits one of its requests. Both arms of a pair are exchangeable up to
  their ratio, so that log ratios are symmetric and their trimmed mean is their median, found with
  fewer pairs.
- A single arm's figure is a median with the interval of order statistics (the inverted sign test,
  `scipy.stats.quantile_test`; Conover, Practical Nonparametric Statistics, 3rd ed., ch. 3.2), which
  assumes no shape at all.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.stats import mstats

CONFIDENCE = 0.95
POWER = 0.95
TRIM = 0.2
"""The share left out at either end."""


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval; the interval is infinite where the samples are too few."""

    value: float
    low: float
    high: float
    count: int
    """Samples, or pairs for a ratio."""

    def includes(self, value: float) -> bool:
        """Whether `value` lies in the interval."""
        return self.low <= value <= self.high


def exactly(value: float) -> Estimate:
    """A figure that repeats exactly, such as a count."""
    return Estimate(value, value, value, 1)


def exact_mean(values: Iterable[float | None]) -> Estimate | None:
    """The mean of those counts that are known."""
    known = [one for one in values if one is not None]
    return exactly(sum(known) / len(known)) if known else None


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
    """The centre of at least one paired ratio."""
    centre, margin = _trimmed(ratios)
    return Estimate(
        value=math.exp(centre),
        low=math.exp(centre - margin),
        high=math.exp(centre + margin) if margin < math.inf else math.inf,
        count=len(ratios),
    )


def pooled(ratios: Iterable[Sequence[float]]) -> Estimate:
    """One estimate over the ratios of several cells in which the same is expected."""
    return ratio([one for cell in ratios for one in cell])


def detectable(noise: Sequence[float]) -> float:
    """The smallest change that so many pairs would have shown, from the ratios of identical arms.

    That is the change whose 95 % interval leaves out 1 with a probability of 95 %: 0.05 is 5 %.
    (Bloom, Evaluation Review 19, 1995: a minimum detectable effect is a multiple of the standard
    error, the sum of two quantiles of Student's t.)
    """
    _, margin = _trimmed(noise)
    if margin == math.inf:
        return math.inf
    degrees = len(noise) - 2 * int(TRIM * len(noise)) - 1
    quantiles = stats.t.ppf([(1 + CONFIDENCE) / 2, POWER], degrees)
    return math.expm1(margin / quantiles[0] * quantiles.sum())


def differ(ratios: Sequence[float]) -> float:
    """How likely ratios of identical arms come out so far from 1, at least so far (Wilcoxon)."""
    logs = np.log(ratios)
    return float(stats.wilcoxon(logs).pvalue) if np.any(logs) else 1.0


def _trimmed(ratios: Sequence[float]) -> tuple[float, float]:
    """The trimmed mean of the logarithms, and half of its interval."""
    logs = np.log(ratios)
    centre = float(stats.trim_mean(logs, TRIM))
    if len(logs) == 1:
        return centre, math.inf
    low, high = mstats.trimmed_mean_ci(logs, limits=(TRIM, TRIM), alpha=1 - CONFIDENCE)
    return centre, float(high - low) / 2
