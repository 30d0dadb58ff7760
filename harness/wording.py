"""Figures and lists in words."""

import math

from harness.estimate import Estimate


def interval(estimate: Estimate) -> str:
    """The 95 % interval of a ratio: "2.05 to 2.20", or how many samples were too few for one."""
    if estimate.low == 0:
        return f"{estimate.count} sample{'s' * (estimate.count != 1)}"
    return f"{estimate.low:.2f} to {estimate.high:.2f}"


def times(estimate: Estimate) -> str:
    """A ratio and its 95 % interval: "2.13x (2.05 to 2.20)"."""
    return f"{estimate.value:.2f}x ({interval(estimate)})"


def change(estimate: Estimate) -> str:
    """A ratio in short: "2.13x", or "none" where its interval includes 1."""
    return "none" if estimate.includes(1.0) else f"{estimate.value:.2f}x"


def bound(estimate: Estimate) -> str:
    """What the change is smaller than, where none is seen: "4 %"."""
    return percent(max(estimate.high - 1, 1 - estimate.low))


def percent(share: float) -> str:
    """ "4 %", "0.4 %"; "any" for an infinite share."""
    if math.isinf(share):
        return "any"
    return f"{share * 100:.0f} %" if share >= 0.01 else f"{share * 100:.1f} %"


def listed(words: list[str]) -> str:
    """ "2, 3 and 4" """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
