"""How many samples pairing saves, on the same machine in the same minutes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness import estimate
from validation.delays import Run


@dataclass(frozen=True)
class Saving:
    """Variance of a ratio without pairing over its variance with it: so many times the samples."""

    within: float
    """Two averages over the samples of the same run, as if the arms had nothing in common."""
    between: float
    """One arm's average from one run, the other's from the next, some seconds later."""


def saving(runs: list[Run]) -> Saving:
    """From the two undelayed arms of every run."""
    within = []
    for run in runs:
        first = np.log([times[None] for times in run.samples])
        second = np.log([times[0.0] for times in run.samples])
        within.append((first.var() + second.var()) / (first - second).var())
    paired = [np.log(run.seen(0.0).value) for run in runs]
    unpaired = [
        np.log(_average(after, 0.0) / _average(before, None)) for before, after in pairwise(runs)
    ]
    return Saving(float(np.median(within)), float(np.var(unpaired) / np.var(paired)))


def _average(run: Run, share: float | None) -> float:
    return estimate.ratio([times[share] for times in run.samples]).value
