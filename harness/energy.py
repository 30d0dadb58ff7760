"""Figures of energy out of windows: per request, over all meters, each with its error."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.record import CellResult, Header, Window
from harness.vocabulary import Arm


@dataclass(frozen=True)
class Figure:
    """A figure that lies within `error` of `value`, whatever the power did meanwhile."""

    value: float
    error: float

    @property
    def is_resolved(self) -> bool:
        """Whether it is told from nothing at all; else it is below what the meters resolve."""
        return abs(self.value) > self.error


def per_request(result: CellResult, arm: Arm) -> list[Figure]:
    """Joules of a request, one figure a window."""
    return [_divided(_joules(window), window.requests) for window in _of(result, arm)]


def power(result: CellResult, arm: Arm) -> list[Figure]:
    """Watts, the mean of each window."""
    return [_divided(_joules(window), window.seconds) for window in _of(result, arm)]


def above_idle(result: CellResult, arm: Arm) -> list[Figure]:
    """Joules of a request beyond what idling for as long takes, one figure a window."""
    idle = {
        window.turn: _divided(_joules(window), window.seconds)
        for window in result.windows
        if window.arm is None
    }
    return [
        _divided(_less(_joules(window), idle[window.turn], window.seconds), window.requests)
        for window in _of(result, arm)
    ]


def mean(figures: Sequence[Figure]) -> Figure:
    """Of at least one figure; errors of one meter may all lie to the same side."""
    count = len(figures)
    return Figure(sum(f.value for f in figures) / count, sum(f.error for f in figures) / count)


def fix_costs(result: CellResult) -> list[float]:
    """Energy of `reload/aligned` over that of `reload/unaligned`, one ratio a turn.

    Empty where either has none, or one of a pair is below what the meters resolve.
    """
    pairs = list(
        zip(
            per_request(result, Arm.RELOAD_ALIGNED),
            per_request(result, Arm.RELOAD_UNALIGNED),
            strict=False,
        )
    )
    if not all(one.is_resolved and one.value > 0 for pair in pairs for one in pair):
        return []
    return [aligned.value / unaligned.value for aligned, unaligned in pairs]


def error(result: CellResult) -> float | None:
    """The largest error of an arm's energy in this cell, as a share of it; None without energy."""
    found = [mean(per_request(result, arm)) for arm in Arm if _of(result, arm)]
    return max((one.error / abs(one.value) for one in found if one.value), default=None)


def absence(header: Header, result: CellResult, arm: Arm) -> str:
    """Why this arm has no energy in this cell, in a sentence; "" if it has."""
    if _of(result, arm):
        return ""
    return result.no_energy.get(arm) or header.no_energy or "The arm was not measured."


def absence_in(header: Header, results: Iterable[CellResult]) -> str:
    """Why a run has no energy anywhere, in a sentence; "" if it has some."""
    results = list(results)
    if any(result.windows for result in results):
        return ""
    said = [reason for result in results for reason in result.no_energy.values()]
    return next(iter(said), header.no_energy)


def _of(result: CellResult, arm: Arm) -> list[Window]:
    found = [window for window in result.windows if window.arm is arm]
    return sorted(found, key=lambda window: window.turn)


def _joules(window: Window) -> Figure:
    """Of all meters together."""
    return Figure(
        sum(one.joules for one in window.energy.values()),
        sum(one.error for one in window.energy.values()),
    )


def _divided(figure: Figure, by: float) -> Figure:
    return Figure(figure.value / by, figure.error / by)


def _less(figure: Figure, idle: Figure, seconds: float) -> Figure:
    return Figure(figure.value - idle.value * seconds, figure.error + idle.error * seconds)


METRICS: dict[str, Callable[[CellResult, Arm], list[Figure]]] = {
    "energy": per_request,
    "power": power,
    "energy_above_idle": above_idle,
}
"""By their names in asv and everywhere else; joules, watts, joules."""
