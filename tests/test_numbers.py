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


def test_five_samples_bound_nothing() -> None:
    found = estimate.ratio([2.0, 2.0, 2.0, 2.0, 2.0])
    assert found == Estimate(value=pytest.approx(2.0), low=0.0, high=math.inf, count=5)
    assert wording.times(found) == "2.00x (5 samples)"


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
