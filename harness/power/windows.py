"""Energy over windows of repeated requests: one arm a window, all arms in turn.

One reload lasts milliseconds and an energy counter moves every 1 to 100 ms, so a request is far
below its resolution. A window is long enough that both its ends together are a few per cent of it.
Its error is a bound: at either end, what the counter did not show yet is at most its next step.
Arms take turns in random order, so that a machine that warms up does so under all of them, and in
every turn the machine idles for one window too (ML.ENERGY, arXiv:2505.06371, takes the power of
steady windows for the same reason). What the sensor itself gets wrong is not in the error: see
`nvml` for its limits.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import MeterError
from harness.power.counter import PATIENCE, Counter
from harness.power.meters import Meters
from harness.record import Energy, GpuState, Window
from harness.vocabulary import Arm

TURNS = 3
LEAST_STEPS = 20
"""Steps of the slowest counter in a window: either end is at most one of them, so 5 % or less."""
WARMER = 5.0
"""Degrees above its temperature at the start from which a GPU is left to cool."""
COOLDOWN_SECONDS = 10.0
"""But no longer than this before a cell."""
_IDLE_SLICE = 0.01
_WATCHED = 0.02
"""Share of a window in which the counters are watched at its beginning, if they are so fast."""


@dataclass(frozen=True)
class Load:
    """What one window does."""

    prepare: Callable[[], None]
    """Before the window."""
    once: Callable[[], None]
    """Again and again in it, whole."""


def length(meters: Meters, seconds: float, loads: int) -> float:
    """Seconds of one window if all windows of so many loads may take `seconds`."""
    return max(LEAST_STEPS * meters.period, seconds / (loads * TURNS))


def alternate(
    meters: Meters,
    loads: Mapping[Arm, Load],
    seconds: float,
    order: np.random.Generator,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Window]:
    """Take `TURNS` windows of every load and of idling, each as soon as it is asked for.

    Args:
        meters: with at least one counter.
        loads: by arm.
        seconds: of one window, at least.
        order: draws the order in each turn.
        clock: seconds.
        pause: sleeps so many seconds.

    Raises:
        MeterError: a counter was lost, reset or stands still.
    """
    idle = Load(lambda: None, lambda: pause(_IDLE_SLICE))
    every: list[tuple[Arm | None, Load]] = [*loads.items(), (None, idle)]
    for turn in range(TURNS):
        for place in order.permutation(len(every)):
            arm, load = every[place]
            load.prepare()
            yield _take(meters, arm, turn, load.once, seconds, clock, pause)


def cool_down(
    states: Callable[[], Sequence[GpuState]],
    started: Sequence[GpuState],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until no GPU is much warmer than when the run `started`, but not for long."""
    began = clock()
    while clock() - began < COOLDOWN_SECONDS and any(
        _is_warmer(now, then) for now, then in zip(states(), started, strict=True)
    ):
        pause(0.5)


def _is_warmer(now: GpuState, then: GpuState) -> bool:
    if now.temperature is None or then.temperature is None:
        return False
    return now.temperature > then.temperature + WARMER


def _take(
    meters: Meters,
    arm: Arm | None,
    turn: int,
    once: Callable[[], None],
    seconds: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> Window:
    counters = meters.counters
    first = _Steps(counters, clock)
    began, done = clock(), 0
    # The first step of a fast counter is far smaller than a request: do not wait for one to end.
    while meters.period < _WATCHED * seconds > clock() - began and not first.complete:
        first.look()
    while clock() - began < seconds or not first.complete:
        once()
        done += 1
        first.look()
    last = _Steps(counters, clock)
    ended = clock()
    states = meters.states()
    while not last.complete:
        pause(meters.period / 50)
        last.look()
    return Window(
        arm=arm,
        turn=turn,
        requests=0 if arm is None else done,
        seconds=ended - began,
        energy={
            counter.name: _between(counter, first, last, place)
            for place, counter in enumerate(counters)
        },
        gpus=states,
    )


class _Steps:
    """What each counter shows at one moment, and how far its next step goes."""

    def __init__(self, counters: Sequence[Counter], clock: Callable[[], float]) -> None:
        self._counters, self._clock, self._began = counters, clock, clock()
        self.shown = [counter.energy() for counter in counters]
        self.steps = [0.0] * len(counters)

    @property
    def complete(self) -> bool:
        """Whether every counter has moved since."""
        return all(self.steps)

    def look(self) -> None:
        """See which counters have moved.

        Raises:
            MeterError: one of them does not, or cannot be read.
        """
        for place, counter in enumerate(self._counters):
            if not self.steps[place]:
                self.steps[place] = counter.energy() - self.shown[place]
                if not self.steps[place] and self._clock() - self._began > PATIENCE:
                    raise MeterError(f"The energy counter of {counter.name} stands still.")


def _between(counter: Counter, first: _Steps, last: _Steps, place: int) -> Energy:
    """What was spent from the one moment to the other, in the middle of what is possible."""
    before, after = first.steps[place], last.steps[place]
    return Energy(
        joules=last.shown[place] - first.shown[place] + (after - before) / 2,
        error=(after + before) / 2 + counter.unit,
    )
