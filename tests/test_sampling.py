"""When a cell is ended, and that ending it by what was seen does not spoil its interval."""

import itertools
import math

import noise
import numpy as np
import pytest

from harness import estimate, sampling
from harness.sampling import Rule
from harness.vocabulary import Ended

CELLS = 2000
LONGEST = 64


def collect(rule: Rule, ratios: list[float], seconds: float = 0.1) -> tuple[list[float], Ended]:
    """Take from `ratios`; the clock goes on by `seconds` between two looks at it."""
    clock = itertools.count()
    return sampling.collect(rule, ratios.__getitem__, float, lambda: next(clock) * seconds)


def test_narrow_cell_ends_one_block_after_the_look_that_ended_it() -> None:
    ratios = [1.001, 0.999] * 50
    taken, ended = collect(Rule(samples=12, half_width=0.03, seconds=100), ratios)
    assert (len(taken), ended) == (16, Ended.NARROW)
    assert taken == ratios[:16]


def test_noisy_cell_goes_on_until_it_is_narrow() -> None:
    generator = np.random.default_rng(0)
    ratios = np.exp(generator.normal(0, 0.08, 400)).tolist()
    taken, ended = collect(Rule(samples=12, half_width=0.03, seconds=1e9), ratios)
    assert ended is Ended.NARROW
    assert 20 < len(taken) < 100
    assert sampling.half_width(taken[: len(taken) - 4]) <= 0.03
    assert all(sampling.half_width(taken[:n]) > 0.03 for n in range(12, len(taken) - 4, 4))


def test_cell_whose_time_is_used_up_ends_after_a_whole_block_and_the_minimum() -> None:
    ratios = [0.5, 2.0] * 50
    taken, ended = collect(Rule(samples=12, half_width=0.03, seconds=0.01), ratios)
    assert (len(taken), ended) == (12, Ended.TIME)
    taken, ended = collect(Rule(samples=12, half_width=0.03, seconds=0.25), ratios)
    assert (len(taken), ended) == (20, Ended.TIME)


def test_fixed_number_of_samples() -> None:
    taken, ended = collect(Rule(samples=5, half_width=0.03, seconds=0), [1.0] * 9)
    assert (len(taken), ended) == (5, Ended.COUNT)


def test_half_width_is_a_share_to_either_side() -> None:
    cost = estimate.ratio([1.9, 2.0, 2.1, 2.2])
    assert sampling.half_width([1.9, 2.0, 2.1, 2.2]) == pytest.approx(cost.high / cost.value - 1)
    assert sampling.half_width([2.0]) == math.inf


@pytest.mark.parametrize("spread", [0.03, 0.06, 0.12])
def test_interval_of_a_cell_that_was_ended_by_its_own_width_still_covers(spread: float) -> None:
    """The 95 % interval holds the true ratio in 93 to 97 % of 2,000 cells.

    The spreads end cells at the first look, somewhere on the way, and mostly by their time.
    """
    generator = np.random.default_rng(int(1000 * spread))
    truth = 1.7
    rule = Rule(samples=12, half_width=0.03, seconds=LONGEST / sampling.BLOCK)
    covered = 0
    for _ in range(CELLS):
        ratios = truth * np.exp(noise.log_ratios(generator, LONGEST + 16, spread))
        taken, _ = collect(rule, ratios.tolist(), seconds=1.0)
        covered += estimate.ratio(taken).includes(truth)
    assert 0.93 <= covered / CELLS <= 0.97
