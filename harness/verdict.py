"""Is the output right? Judged by two signals, tokens and log-probability drift.

Tokens alone miss a real corruption (Falcon-H1: 2 of 50 prompts showed it), and condemn correct
runs at low precision, where rounding alone flips some. Drift tells the two apart where the noise
of correct arms lies well below what a corruption does. How large that noise is, each run measures
on itself.
"""

import math
from collections.abc import Iterable
from enum import StrEnum

import numpy as np

from harness.cells import Cell
from harness.errors import FixcostError
from harness.record import ArmResult, CellResult, Oracle, Provenance, Record
from harness.vocabulary import Arm, Scenario

RESOLUTION = 8 * 2.0**-23
"""Nats that rounding alone can move a log-probability: float32, at a size of up to 8 nats. The
logits are float32 at any precision of the model."""
MARGIN = 10.0
"""From the floor up to the threshold: room for the tail of the noise, which a run hardly sees."""


class Verdict(StrEnum):
    """Whether an arm's output equals the cold output."""

    EQUAL = "equal"
    WRONG = "wrong"
    CANNOT_TELL = "cannot tell"
    """The noise of this run is as large as a corruption."""


def is_exact(dtype: str, state_dtype: str) -> bool:
    """Whether model and state are float32, so that rounding cannot flip a token."""
    return dtype == state_dtype == "float32"


def derive(results: Iterable[CellResult], provenance: Provenance) -> Oracle:
    """Find from a run's own samples how its wrong output is told from right.

    The floor is the drift of `gpu_hit`, whose prefix never leaves the device, at the 90th
    percentile, so that a tenth of them may be corrupted without hiding anything. The threshold is
    `MARGIN` times the floor, or times what rounding can do if that is more. Where the known
    corruption drifts no further than that, a run below float32 is blind.
    """
    results = list(results)
    precision = provenance.state_dtype if provenance.dtype == "float32" else provenance.dtype
    exact = is_exact(provenance.dtype, provenance.state_dtype)
    device = _drifts(results, [Arm.GPU_HIT])
    floor = float(np.quantile(device, 0.9))
    threshold = MARGIN * max(floor, RESOLUTION)
    correct = device + _drifts([r for r in results if not r.cell.is_exact_boundary], list(Arm))
    weakest = min(_drifts(_corrupted(results), [Arm.RELOAD_UNALIGNED]), default=math.inf)
    overlap = (
        f"at {precision} the known corruption moves the output by as little as {weakest:.2g} nats, "
        f"and rounding alone by {floor:.2g}"
    )
    return Oracle(
        gpu_hits=len(device),
        floor=floor,
        threshold=threshold,
        noise=max(drift for drift in [0.0, *correct] if drift <= threshold),
        weakest=weakest,
        tokens_count=exact,
        blind="" if exact or weakest > threshold else overlap,
        blind_scenarios=_blind_scenarios(results),
    )


def oracle_of(record: Record) -> Oracle:
    """The one that the record holds, or, while cells are missing, derived from those there are."""
    return record.header.oracle or derive(record.cells.values(), record.header.provenance)


def is_wrong(arm: ArmResult, oracle: Oracle) -> bool:
    """Whether output that differs from the cold output so much is wrong."""
    by_token = oracle.tokens_count and arm.wrong_tokens > 0
    return by_token or not arm.logprob_drift <= oracle.threshold  # NaN is wrong too


def judge(result: CellResult, arm: Arm, oracle: Oracle) -> Verdict:
    """The verdict on one arm of one cell: wrong as soon as one sample is."""
    if oracle.blind:
        return Verdict.CANNOT_TELL
    wrong = any(is_wrong(sample.arms[arm], oracle) for sample in result.samples)
    return Verdict.WRONG if wrong else Verdict.EQUAL


def check_boundaries(cells: Iterable[Cell]) -> None:
    """Refuse cells in which the bug cannot show.

    Raises:
        FixcostError: none is an exact boundary.
    """
    if not any(cell.is_exact_boundary for cell in cells):
        raise FixcostError(
            "This sweep has no exact boundary of 2 chunks or more, so it cannot see the bug: "
            "sweep at least 2 chunks."
        )


def check_control(record: Record) -> None:
    """Refuse a record that could not have seen the bug.

    Scenarios that are blind are left to the others.

    Raises:
        FixcostError: the unaligned arm at an exact boundary did not drift beyond the threshold in
            every sample, every scenario is blind, or no exact boundary was measured.
    """
    check_boundaries(record.cells)
    oracle = oracle_of(record)
    if oracle.blind:
        return
    corrupted = _corrupted(record.cells.values())
    if not corrupted:
        raise FixcostError(
            "The negative control failed: at no exact boundary does the unaligned arm restore "
            "anything else than the aligned one, so this run could not have seen the bug."
        )
    unseen = [
        (result.cell, sample.index)
        for result in corrupted
        for sample in result.samples
        if sample.arms[Arm.RELOAD_UNALIGNED].logprob_drift <= oracle.threshold
    ]
    if unseen:
        cell, index = unseen[0]
        total = sum(len(result.samples) for result in corrupted)
        raise FixcostError(
            f"The negative control failed: the known corruption went unseen in {len(unseen)} of "
            f"{total} samples, first in sample {index} of [{cell.label}], so this run "
            f"could not have seen the bug (noise floor {oracle.floor:.2g} nats, threshold "
            f"{oracle.threshold:.2g})."
        )


def _corrupted(results: Iterable[CellResult]) -> list[CellResult]:
    """The exact boundaries of the scenarios in which the known corruption can show."""
    results = list(results)
    blind = _blind_scenarios(results)
    return [r for r in results if r.cell.is_exact_boundary and r.cell.scenario not in blind]


def _blind_scenarios(results: Iterable[CellResult]) -> list[Scenario]:
    """Those in which the unaligned arm never restores anything else than the aligned one.

    At an exact boundary it restores one token more than is right, unless the code under test has
    stored nothing there that it could restore (vLLM from 0.30 on, in `repeat`).
    """
    differs: dict[Scenario, bool] = {}
    for result in results:
        if result.cell.is_exact_boundary:
            restored = [
                [sample.arms[arm].cached_tokens for sample in result.samples]
                for arm in (Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED)
            ]
            scenario = result.cell.scenario
            differs[scenario] = differs.get(scenario, False) or restored[0] != restored[1]
    return [scenario for scenario, seen in differs.items() if not seen]


def _drifts(results: Iterable[CellResult], arms: Iterable[Arm]) -> list[float]:
    return [
        sample.arms[arm].logprob_drift
        for arm in arms
        for result in results
        for sample in result.samples
    ]
