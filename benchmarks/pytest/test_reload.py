"""The pytest-benchmark form: time to the first token of every arm, output equality asserted.

Times of an arm whose output is wrong are worth nothing: there the test fails, and is expected to.
"""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.common import CHUNKS
from harness import consumption, energy, energy_tables, profiles, protocol, verdict
from harness.cells import Cell, grid
from harness.engine import Engine, Serving
from harness.power.meters import Meters
from harness.record import CellResult
from harness.vocabulary import RELOAD_ARMS, REPORTED_ARMS, Alignment, Arm, Ended

ROUNDS = 5
ENERGY_SECONDS = 1.0
SEED = 2
PROFILE = profiles.choose()
CAN_TELL = verdict.is_exact(PROFILE.dtype, PROFILE.state_dtype)
"""Else rounding alone moves the output, and nothing about it is asserted."""


def is_corrupted(cell: Cell, arm: Arm) -> bool:
    return arm is Arm.RELOAD_UNALIGNED and cell.is_exact_boundary


def arms_of_cells() -> list[object]:
    """Every arm of every cell; the known corruption is a strict expected failure."""
    wrong = pytest.mark.xfail(
        strict=True, raises=AssertionError, reason="unaligned at an exact boundary: vLLM 51094"
    )
    return [
        pytest.param(
            cell,
            arm,
            id=f"{cell.key}-{arm}",
            marks=wrong if CAN_TELL and is_corrupted(cell, arm) else (),
        )
        for cell in grid(CHUNKS)
        for arm in REPORTED_ARMS
    ]


def spent(running: Engine, meters: Meters, cell: Cell, arm: Arm) -> dict[str, object]:
    """Energy, power and energy above idle with their errors, or why there are none."""
    windows, reasons = consumption.measure(running, meters, cell, SEED, ENERGY_SECONDS, arms=(arm,))
    measured = CellResult(cell, 0, [], Ended.COUNT, windows)
    if not windows:
        return dict.fromkeys(energy.METRICS, f"n/a: {reasons.get(arm) or meters.reason}")
    return {
        name: energy_tables.with_error(energy.mean(figures(measured, arm)))
        for name, figures in energy.METRICS.items()
    }


@pytest.mark.parametrize(("cell", "arm"), arms_of_cells())
def test_ttft(
    benchmark: BenchmarkFixture, running: Engine, meters: Meters, cell: Cell, arm: Arm
) -> None:
    """Time to the first token of one arm, and the same tokens as cold."""
    drawn = protocol.draw(running, cell, SEED, 0)
    cold = protocol.serve_before(running, cell, drawn)

    def prepare() -> None:
        if arm is Arm.COLD:
            running.evict(host=True)
        elif arm in RELOAD_ARMS:
            running.evict()
        else:
            running.settle()

    def first_token() -> Serving:
        return running.serve(drawn.prompt, tokens=1)

    with running.alignment(RELOAD_ARMS.get(arm, Alignment.SHIPPED)):
        benchmark.group = cell.label
        first = benchmark.pedantic(first_token, setup=prepare, rounds=ROUNDS, warmup_rounds=1)
        prepare()
        served = running.serve(drawn.prompt)
    result = protocol.compare(served, cold, len(drawn.prompt))
    benchmark.extra_info.update(
        reload_bytes=result.reload_bytes,
        recomputed_tokens=result.recomputed_tokens,
        wrong_tokens=result.wrong_tokens,
        logprob_drift=result.logprob_drift,
        **spent(running, meters, cell, arm),
    )
    if CAN_TELL:
        assert first.tokens == cold.tokens[:1]
        assert result.wrong_tokens == 0
        assert result.logprob_drift <= verdict.MARGIN * verdict.RESOLUTION
