"""Two commits are two engine starts, and starts differ by more than samples do.

A start draws its own memory layout, threads and minutes of a shared machine, and no number of
samples within it averages that away. So between commits the start is the unit: its samples make one
median, whose logarithm carries the noise of both levels, and the two sets of starts are compared by
Yuen's trimmed t-test (Biometrika 61, 1974; `scipy.stats.ttest_ind`), the hierarchical analysis of
balanced data (Kalibera and Jones, ISMM 2013, doi:10.1145/2464157.2464160) that one start on a
machine in trouble cannot spoil: from five starts on the slowest and the fastest are left out.
Starts alternate between the commits, so that a drift of the machine hits both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from harness.estimate import CONFIDENCE, POWER, TRIM, Estimate

QUIET_SPREAD = 0.05
"""Deviation of the log medians of starts on a quiet two-core machine: what one start each cannot
show of itself."""


class Change(StrEnum):
    """What two sets of starts say."""

    SLOWER = "slower"
    FASTER = "faster"
    NONE_SEEN = "no change seen"
    TOO_FEW = "too few starts to tell"


@dataclass(frozen=True)
class Between:
    """A figure of the second commit over that of the first."""

    ratio: Estimate
    """`count` is the starts of the commit that has fewer; with one the interval is infinite."""
    detectable: float
    """The smallest change that would have been seen (0.05 is 5 %); with one start of either, the
    smallest that could have been if starts spread no more than `QUIET_SPREAD`."""
    change: Change


def compare(base: Sequence[float], fix: Sequence[float]) -> Between:
    """Compare two commits by one positive figure a start, at least one each."""
    before, after = np.log(base), np.log(fix)
    centre = float(stats.trim_mean(after, TRIM) - stats.trim_mean(before, TRIM))
    fewer = min(len(base), len(fix))
    if fewer < 2:
        error = QUIET_SPREAD * math.sqrt(1 / len(base) + 1 / len(fix))
        quantiles = stats.norm.ppf([(1 + CONFIDENCE) / 2, POWER])
        unknown = Estimate(math.exp(centre), 0.0, math.inf, fewer)
        return Between(unknown, math.expm1(error * quantiles.sum()), Change.TOO_FEW)
    test = stats.ttest_ind(after, before, equal_var=False, trim=TRIM)
    low, high = test.confidence_interval(CONFIDENCE)
    quantiles = stats.t.ppf([(1 + CONFIDENCE) / 2, POWER], test.df)
    error = (high - low) / 2 / quantiles[0]
    change = Change.NONE_SEEN if low <= 0 <= high else Change.SLOWER if low > 0 else Change.FASTER
    return Between(
        ratio=Estimate(math.exp(centre), math.exp(low), math.exp(high), fewer),
        detectable=math.expm1(error * quantiles.sum()),
        change=change,
    )


def pooled(cells: Sequence[Sequence[float]]) -> list[float]:
    """One figure a start out of one of each cell: their geometric mean.

    Args:
        cells: for each cell the figures of all starts, in the order of the starts.
    """
    return [float(one) for one in np.exp(np.log(np.array(cells)).mean(axis=0))]
