"""Comparing commits by their starts: how often it says "slower", and when it should not."""

import math

import numpy as np
import pytest

from harness import starts
from harness.starts import Change

SPREAD = 0.05
ROUNDS = 2000


def drawn(generator: np.random.Generator, count: int, ratio: float = 1.0) -> list[float]:
    """Medians of so many starts."""
    noise = generator.normal(0, SPREAD, count)
    return [float(one) for one in 0.01 * ratio * np.exp(noise)]


def said(ratio: float, count: int) -> dict[Change, int]:
    generator = np.random.default_rng(3)
    words = [
        starts.compare(drawn(generator, count), drawn(generator, count, ratio)).change
        for _ in range(ROUNDS)
    ]
    return {word: words.count(word) for word in Change}


def test_interval_by_hand() -> None:
    """Log ratios 1, 2 and 3: mean 2, deviation 1, Student's quantile with 2 degrees 4.303.

    Tukey and McLaughlin's error is the deviation over 0.6 sqrt(3), also where so few samples leave
    none to trim.
    """
    found = starts.compare([1.0, 1.0, 1.0], [math.e, math.e**2, math.e**3])
    half = 4.303 / (0.6 * math.sqrt(3))
    assert math.log(found.ratio.value) == pytest.approx(2)
    assert math.log(found.ratio.low) == pytest.approx(2 - half, abs=1e-3)
    assert math.log(found.ratio.high) == pytest.approx(2 + half, abs=1e-3)
    assert found.change is Change.NONE_SEEN
    assert found.ratio.count == 3


def test_pace_that_drifts_is_no_change() -> None:
    """Every pair of starts is equally fast, though the machine becomes twice as slow."""
    pace = [0.010, 0.012, 0.014, 0.016, 0.018, 0.020]
    found = starts.compare(pace, [one * 1.2 for one in pace])
    assert found.change is Change.SLOWER
    assert found.ratio.value == pytest.approx(1.2)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_equal_commits_are_rarely_called_different(count: int) -> None:
    words = said(1.0, count)
    assert words[Change.SLOWER] + words[Change.FASTER] <= 0.06 * ROUNDS
    assert words[Change.TOO_FEW] == 0


def test_twenty_percent_is_seen_with_six_starts_and_five_percent_is_not() -> None:
    assert said(1.2, 6)[Change.SLOWER] > 0.9 * ROUNDS
    assert said(1 / 1.2, 6)[Change.FASTER] > 0.9 * ROUNDS
    assert said(1.05, 6)[Change.SLOWER] < 0.5 * ROUNDS


def test_a_detectable_change_is_detected_as_often_as_it_says() -> None:
    """The median of the detectable changes is seen in 95 of 100 cases; trimmed, in a few less."""
    generator = np.random.default_rng(5)
    limits = [
        starts.compare(drawn(generator, 6), drawn(generator, 6)).detectable for _ in range(ROUNDS)
    ]
    seen = said(1 + float(np.median(limits)), 6)[Change.SLOWER]
    assert 0.85 * ROUNDS < seen < 0.98 * ROUNDS


def test_one_start_on_a_machine_in_trouble_does_not_hide_a_change() -> None:
    fine = [0.0100, 0.0101, 0.0099, 0.0102, 0.0098]
    assert starts.compare(fine, [1.2 * one for one in fine[1:]] + [0.1]).change is Change.SLOWER


def test_one_start_is_too_few_whatever_comes_out() -> None:
    """(1.960 + 1.645) * 0.05 * sqrt(2) = 0.2549, and exp of it less 1 is 0.290."""
    for base, fix in (([1.0], [9.0]), ([1.0, 1.01, 1.02], [9.0])):
        found = starts.compare(base, fix)
        assert found.change is Change.TOO_FEW
        assert (found.ratio.low, found.ratio.high) == (0.0, math.inf)
    assert starts.compare([1.0], [9.0]).detectable == pytest.approx(0.290, abs=1e-3)


def test_pooled_is_the_geometric_mean_over_cells() -> None:
    assert starts.pooled([[1.0, 2.0], [4.0, 8.0]]) == pytest.approx([2.0, 4.0])
