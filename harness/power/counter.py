"""An energy counter that moves in steps: unwrapped, and watched for how often it moves.

What a counter shows is what had been spent at its last step. So a difference of two readings is
off by what was spent since then, at either end. That is never more than the step that follows,
which is therefore read as well: it makes the error of a window a bound and no guess, whatever the
power did meanwhile (`windows`).
"""

import time
from collections.abc import Callable
from statistics import median

from harness.errors import MeterError

WATCHED_STEPS = 10
PATIENCE = 2.0
"""Seconds without a step after which a counter counts as standing still."""
IMPOSSIBLE_WATTS = 1e5
"""A rise beyond it is no energy: the counter was reset."""


class Counter:
    """A counter's energy since it was opened, and the time between its steps."""

    def __init__(
        self,
        name: str,
        read: Callable[[], int],
        *,
        joules: float,
        span: int,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Watch the counter until it has moved `WATCHED_STEPS` times.

        Args:
            name: of what it measures, for people.
            read: the raw count; raises `MeterError`.
            joules: of one count.
            span: at this count it starts again at 0.
            clock: seconds.
            pause: sleeps so many seconds.

        Raises:
            MeterError: it stands still, or cannot be read.
        """
        self.name = name
        self.unit = joules
        """Joules of one count."""
        self._read, self._span = read, span
        self._clock, self._pause = clock, pause
        self._count, self._total, self._at = read(), 0, clock()
        self.period = 0.0
        """Seconds between two steps, in the median."""
        self.next_step()
        gaps = []
        for _ in range(WATCHED_STEPS):
            began = self._clock()
            self.next_step()
            gaps.append(self._clock() - began)
        self.period = median(gaps)

    def energy(self) -> float:
        """Joules shown since it was opened.

        Raises:
            MeterError: it cannot be read any more, or was reset.
        """
        count, now = self._read(), self._clock()
        risen = (count - self._count) % self._span
        if risen * self.unit > IMPOSSIBLE_WATTS * max(now - self._at, 1.0):
            raise MeterError(f"The energy counter of {self.name} was reset in the midst of a run.")
        self._count, self._at = count, now
        self._total += risen
        return self._total * self.unit

    def next_step(self) -> float:
        """Wait until the counter moves, and return how far it went, in joules.

        Raises:
            MeterError: it stands still for `PATIENCE`, or cannot be read.
        """
        before, began = self.energy(), self._clock()
        while (after := self.energy()) == before:
            if self._clock() - began > PATIENCE:
                raise MeterError(
                    f"The energy counter of {self.name} did not move within {PATIENCE:.0f} s."
                )
            self._pause(self.period / 50)
        return after - before
