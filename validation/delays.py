"""Known delays put into one arm of a real engine: are they found, and is their size right?"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness import estimate, protocol, sampling
from harness.cells import Cell
from harness.engine import Engine
from harness.estimate import Estimate
from harness.vocabulary import Offset, Scenario

CELL = Cell(Scenario.REPEAT, 2, Offset.EXACT)
SHARES = (0.0, 0.02, 0.05, 0.1)
"""Delays, as shares of the time to the first token."""
RUNS = 20
RULE = sampling.Rule(samples=12, half_width=0.022, seconds=20.0)
"""A run goes on until two undelayed arms are known to be as equal as this."""
PILOT = 20

Times = dict[float | None, float]
"""Seconds to the first token by delay; None is the arm that the others are compared with."""


@dataclass(frozen=True)
class Run:
    """One run: the times of each sample, seconds of the delays, and how long it took."""

    samples: list[Times]
    seconds: float

    def seen(self, share: float) -> Estimate:
        """The ratio found for the arm with this delay."""
        return estimate.ratio(self.ratios(share))

    def ratios(self, share: float) -> list[float]:
        """Of the arm with this delay over the one without, one ratio a sample."""
        return [times[share] / times[None] for times in self.samples]


def runs(engine: Engine) -> Iterator[Run]:
    """Take `RUNS` runs on a running engine."""
    samples = [_sample(engine, 0.0, -1, index) for index in range(PILOT)]
    for number in range(RUNS):
        unit = float(np.median([times[None] for times in samples]))  # machines change pace
        began = time.monotonic()
        samples, _ = sampling.collect(
            RULE,
            lambda index, unit=unit, number=number: _sample(engine, unit, number, index),
            lambda times: times[0.0] / times[None],
        )
        yield Run(samples, time.monotonic() - began)


def _sample(engine: Engine, unit: float, run: int, index: int) -> Times:
    generator = np.random.default_rng([51094, run + 1, index])
    length = CELL.prompt_length(engine.chunk)
    prompt = generator.integers(protocol.FIRST_TOKEN_ID, engine.vocabulary, length).tolist()
    engine.evict(host=True)
    engine.serve(prompt, tokens=1)
    arms: list[float | None] = [None, *SHARES]
    times: Times = {}
    for place in generator.permutation(len(arms)):
        engine.evict()
        with _delayed(engine, (arms[place] or 0.0) * unit):
            times[arms[place]] = engine.serve(prompt, tokens=1).ttft
    return times


@contextmanager
def _delayed(engine: Engine, seconds: float) -> Iterator[None]:
    """Let every lookup of the connector take so much longer; it spins, as real work would."""
    connector = engine._connector
    lookup = connector.get_num_new_matched_tokens

    def slowly(*arguments: Any) -> Any:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass
        return lookup(*arguments)

    connector.get_num_new_matched_tokens = slowly
    try:
        yield
    finally:
        del connector.get_num_new_matched_tokens
