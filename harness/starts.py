"""Two commits are two engine starts, and starts differ by more than samples do.

A start draws its own memory layout, threads and minutes of a shared machine, and no number of
samples within it averages that away. So between commits the start is the unit: its samples make one
median, whose logarithm carries the noise of both levels (Kalibera and Jones, ISMM 2013,
doi:10.1145/2464157.2464160). Starts alternate between the commits, and each is compared with its
neighbour of the other one: a machine's pace drifts from minute to minute, and the pair shares it.
The estimator is that of every other ratio here, the trimmed mean of paired log ratios
(`estimate.ratio`), which one start on a machine in trouble cannot spoil.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from harness import estimate
from harness.estimate import CONFIDENCE, POWER, Estimate

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
    """`count` is the pairs of starts; with one the interval is infinite."""
    detectable: float
    """The smallest change that would have been seen (0.05 is 5 %); with one start of either, the
    smallest that could have been if starts spread no more than `QUIET_SPREAD`."""
    change: Change


def compare(base: Sequence[float], fix: Sequence[float]) -> Between:
    """Compare two commits by one positive figure a start, at least one each.

    Both in the order of the starts; what one commit has more of than the other is left out.
    """
    ratios = [after / before for before, after in zip(base, fix, strict=False)]
    seen = estimate.ratio(ratios)
    if len(ratios) < 2:
        quantiles = stats.norm.ppf([(1 + CONFIDENCE) / 2, POWER])
        limit = math.expm1(QUIET_SPREAD * math.sqrt(2) * quantiles.sum())
        return Between(seen, limit, Change.TOO_FEW)
    change = Change.SLOWER if seen.low > 1 else Change.FASTER
    return Between(
        ratio=seen,
        detectable=estimate.detectable(ratios),
        change=Change.NONE_SEEN if seen.includes(1.0) else change,
    )


def pooled(cells: Sequence[Sequence[float]]) -> list[float]:
    """One figure a start out of one of each cell: their geometric mean.

    Args:
        cells: for each cell the figures of all starts, in the order of the starts.
    """
    return [float(one) for one in np.exp(np.log(np.array(cells)).mean(axis=0))]
