"""When a cell has enough samples.

A cell is looked at after every balanced block of samples, from the minimum on. It is ended when
the interval of its fix cost is as narrow as asked, and then takes one block more; or when its time
is used up.

Stopping on the data makes intervals too narrow, for it prefers moments at which the spread looks
small by chance (Anscombe 1953, doi:10.1111/j.2517-6161.1953.tb00121.x). Two things keep the
interval honest here: the half-width says nothing about the centre, as log ratios of paired arms
are symmetric; and the last block comes after the decision, which it therefore cannot have caused.
`tests/test_sampling.py` shows the coverage by simulation.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from harness import estimate
from harness.vocabulary import RELOAD_ARMS, Ended

BLOCK = len(RELOAD_ARMS)
"""Samples in which the order of the arms is balanced."""

Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Rule:
    """When a cell is ended."""

    samples: int
    """At least so many."""
    half_width: float
    """0.03: 3 % to each side."""
    seconds: float
    """0 ends the cell after `samples`."""


def collect(
    rule: Rule,
    take: Callable[[int], Taken],
    ratio: Callable[[Taken], float],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[Taken], Ended]:
    """Take samples until there are enough.

    Args:
        rule: when to end.
        take: takes the sample with an index.
        ratio: the paired ratio of a sample, whose interval decides.
        clock: seconds.
    """
    if rule.seconds == 0:
        return [take(index) for index in range(rule.samples)], Ended.COUNT
    began = clock()
    taken: list[Taken] = []
    while True:
        taken.append(take(len(taken)))
        if len(taken) < rule.samples or len(taken) % BLOCK:
            continue
        if half_width(list(map(ratio, taken))) <= rule.half_width:
            taken += [take(len(taken) + index) for index in range(BLOCK)]
            return taken, Ended.NARROW
        if clock() - began >= rule.seconds:
            return taken, Ended.TIME


def half_width(ratios: list[float]) -> float:
    """Of the 95 % interval, as a share: 0.03 is 3 % to each side of the ratio."""
    cost = estimate.ratio(ratios)
    return math.inf if cost.low == 0 else math.sqrt(cost.high / cost.low) - 1
