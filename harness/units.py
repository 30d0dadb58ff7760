"""Figures as people read them."""

from harness.numbers import Estimate


def seconds(value: float) -> str:
    """A time in the largest unit that keeps it above 1: "11.5 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns" if value else "0 s"


def size(value: float) -> str:
    """A size in binary units: "402 KiB"; counts below 1 KiB stay exact."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value:.0f} B"


def times(estimate: Estimate) -> str:
    """A ratio and its 95 % interval: "2.13x (2.05 to 2.20)"; no interval of too few samples."""
    if estimate.low == 0:
        return f"{estimate.value:.2f}x ({estimate.count} samples)"
    return f"{estimate.value:.2f}x ({estimate.low:.2f} to {estimate.high:.2f})"


def listed(words: list[str]) -> str:
    """ "2, 3 and 4" """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
