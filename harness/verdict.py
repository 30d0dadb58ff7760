"""Is the output right? Judged by two signals, tokens and log-probability drift.

Tokens alone miss a real corruption (Falcon-H1: 2 of 50 prompts showed it), and condemn correct
runs at low precision. In float32 the drift of correct arms stays below 1e-5 and that of a
corrupted state above 1e-3, so a threshold between them separates the two.
"""

from collections.abc import Iterable
from enum import StrEnum

from harness.cells import Cell
from harness.errors import FixcostError
from harness.record import ArmResult, CellResult, Provenance, Record
from harness.vocabulary import Arm

DRIFT_THRESHOLD = 1e-4
"""The geometric mean of the two bounds above, in nats."""


class Verdict(StrEnum):
    """Whether an arm's output equals the cold output."""

    EQUAL = "equal"
    WRONG = "wrong"
    CANNOT_TELL = "cannot tell"
    """Something is kept at a precision whose noise a corruption could hide in."""


def is_wrong(wrong_tokens: float, logprob_drift: float) -> bool:
    """Whether output that differs from the cold output so much is wrong, all in float32."""
    return wrong_tokens > 0 or not logprob_drift <= DRIFT_THRESHOLD  # NaN is wrong too


def can_tell(dtype: str, state_dtype: str) -> bool:
    """Whether model and state are kept precisely enough to tell a corruption from rounding."""
    return dtype == state_dtype == "float32"


def judge(result: CellResult, arm: Arm, provenance: Provenance) -> Verdict:
    """The verdict on one arm of one cell: wrong as soon as one sample is."""
    if not can_tell(provenance.dtype, provenance.state_dtype):
        return Verdict.CANNOT_TELL
    wrong = any(_is_wrong(sample.arms[arm]) for sample in result.samples)
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

    Raises:
        FixcostError: the unaligned arm at an exact boundary was not caught in every sample, or
            no exact boundary was measured.
    """
    check_boundaries(record.cells)
    boundaries = [result for cell, result in record.cells.items() if cell.is_exact_boundary]
    origin = record.header.provenance
    if not can_tell(origin.dtype, origin.state_dtype):
        return
    unseen = [
        (result.cell, sample.index)
        for result in boundaries
        for sample in result.samples
        if not _is_wrong(sample.arms[Arm.RELOAD_UNALIGNED])
    ]
    if unseen:
        cell, index = unseen[0]
        total = sum(len(result.samples) for result in boundaries)
        raise FixcostError(
            f"The negative control failed: the known corruption went unseen in {len(unseen)} of "
            f"{total} samples, first in sample {index} of [{cell.label}], so this run could not "
            f"have seen the bug."
        )


def _is_wrong(result: ArmResult) -> bool:
    return is_wrong(result.wrong_tokens, result.logprob_drift)
