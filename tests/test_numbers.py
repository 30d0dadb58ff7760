"""Cells, estimates and units against values worked out by hand."""

import math

import numpy as np
import pytest

from harness import estimate, wording
from harness.cells import Cell, check_fit, grid
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.vocabulary import Offset, Scenario


def test_grid_has_every_cell_once_in_a_fixed_order() -> None:
    cells = grid(k for k in (8, 2, 2))
    assert len(cells) == len(set(cells)) == 2 * 2 * 4
    assert [cell.key for cell in cells[:5]] == [
        "repeat_2_-1",
        "repeat_2_0",
        "repeat_2_+1",
        "repeat_2_+half",
        "repeat_8_-1",
    ]
    assert [c.chunks for c in cells if c.is_exact_boundary] == [2, 8, 2, 8]
    assert not any(cell.is_exact_boundary for cell in grid([1]))


@pytest.mark.parametrize(
    ("offset", "tokens"),
    [(Offset.ONE_BELOW, 4223), (Offset.EXACT, 4224), (Offset.ONE_ABOVE, 4225), ("+half", 4928)],
)
def test_prompt_length(offset: str, tokens: int) -> None:
    assert Cell(Scenario.REPEAT, 3, Offset(offset)).prompt_length(1408) == tokens


def test_prompt_that_does_not_fit_is_refused_with_the_sizes() -> None:
    cells = grid([2, 15])
    check_fit(cells, chunk=128, context=2048, extra=64)
    with pytest.raises(FixcostError, match=r"1984 tokens .* needs 65 more, but .* holds 2048"):
        check_fit(cells, chunk=128, context=2048, extra=65)


def test_interval_of_the_median_is_that_of_the_sign_test() -> None:
    """Ten samples: the 2nd and the 9th smallest enclose the median with 97.9 %."""
    found = estimate.median([5, 3, 9, 1, 7, 2, 8, 10, 6, 4])
    assert found == Estimate(value=5.5, low=2, high=9, count=10)


def test_one_sample_bounds_nothing() -> None:
    found = estimate.ratio([2.0])
    assert found == Estimate(value=pytest.approx(2.0), low=0.0, high=math.inf, count=1)
    assert wording.times(found) == "2.00x (1 sample)"
    assert estimate.detectable([2.0]) == math.inf


def test_ratio_is_the_trimmed_mean_of_the_logarithms() -> None:
    """Twelve pairs, two cut off at either end: the mean of the logarithms 2 to 9 is 5.5.

    Winsorized (2, 2, 2, 3, ..., 8, 9, 9, 9) the squared deviations sum to 91; the standard error
    is sqrt(91 / 11) / (0.6 sqrt 12) = 1.3838, and half of the interval 2.3646 times that (Student's
    t with 7 degrees).
    """
    logs = [*list(range(11)), 1000]
    found = estimate.ratio([math.exp(log / 100) for log in logs])
    assert 100 * math.log(found.value) == pytest.approx(5.5)
    assert 100 * math.log(found.high) == pytest.approx(5.5 + 3.272, abs=1e-3)
    assert 100 * math.log(found.low) == pytest.approx(5.5 - 3.272, abs=1e-3)
    assert found.count == 12


def test_burst_does_not_move_a_ratio_far() -> None:
    calm = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99]
    found = estimate.ratio([*calm[:-1], 7.0])
    assert found.value == pytest.approx(1.0, abs=0.01)
    assert found.high < 1.03


def test_a_detectable_change_is_detected_as_often_as_it_says() -> None:
    """A change of that size has an interval without 1 in 95 % of the runs."""
    generator = np.random.default_rng(3)
    spread = 0.1
    calm = np.exp(generator.normal(0, spread, (400, 24))).tolist()
    limit = float(np.median([estimate.detectable(run) for run in calm]))
    seen = 0
    for _ in range(400):
        shifted = np.log1p(limit) + generator.normal(0, spread, 24)
        seen += not estimate.ratio(np.exp(shifted).tolist()).includes(1.0)
    assert 0.92 <= seen / 400 <= 0.98


def test_identical_arms_that_differ_are_noticed() -> None:
    generator = np.random.default_rng(4)
    noise = generator.standard_t(3, 400) * 0.1
    assert estimate.differ(np.exp(noise).tolist()) > 0.001
    assert estimate.differ(np.exp(noise + 0.05).tolist()) < 0.001
    assert estimate.differ([1.0, 1.0]) == 1.0


def test_change_in_words() -> None:
    assert wording.change(Estimate(1.5, 1.4, 1.6, 12)) == "1.50x"
    assert wording.change(Estimate(1.01, 0.97, 1.05, 12)) == "none"
    assert wording.bound(Estimate(1.01, 0.94, 1.05, 12)) == "6 %"
    assert wording.percent(0.004) == "0.4 %"
    assert wording.percent(math.inf) == "any"


def test_interval_covers_the_median_as_often_as_it_says() -> None:
    """At least 95 % of 400 runs of ten heavy-tailed samples, whose true median is 0."""
    generator = np.random.default_rng(7)
    runs = generator.standard_t(2, size=(400, 10))
    covered = [estimate.median(run).low <= 0 <= estimate.median(run).high for run in runs.tolist()]
    assert np.mean(covered) >= 0.95


def test_ratio_is_symmetric() -> None:
    up, down = estimate.ratio([2.0, 4.0]), estimate.ratio([0.5, 0.25])
    assert up.value == pytest.approx(math.sqrt(8))
    assert down.value == pytest.approx(1 / math.sqrt(8))


def test_ratio_with_its_interval() -> None:
    assert wording.times(Estimate(2.134, 2.046, 2.204, 10)) == "2.13x (2.05 to 2.20)"


def test_listed() -> None:
    assert wording.listed(["2"]) == "2"
    assert wording.listed(["2", "3", "8"]) == "2, 3 and 8"
