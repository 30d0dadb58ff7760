"""Is the output right? Judged by two signals, tokens and log-probability drift.

Tokens alone miss a real corruption (Falcon-H1: 2 of 50 prompts showed it), and condemn correct
runs at low precision. In float32 the drift of correct arms stays below 1e-5 and that of a
corrupted state above 1e-3, so a threshold between them separates the two.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harness.cells import Cell
from harness.errors import FixcostError
from harness.record import ArmResult, CellResult, Header, Record
from harness.vocabulary import Arm

DRIFT_THRESHOLD = 1e-4
"""The geometric mean of the two bounds above, in nats."""


class Verdict(StrEnum):
    """Whether an arm's output equals the cold output."""

    EQUAL = "equal"
    WRONG = "wrong"
    CANNOT_TELL = "cannot tell"
    """State is kept at a precision whose noise a corruption could hide in."""


@dataclass(frozen=True)
class ControlFailure:
    """A sample in which the known corruption went unseen."""

    cell: Cell
    sample: int


def is_wrong(result: ArmResult) -> bool:
    """Whether this arm's output differs from the cold output, for state kept in float32."""
    return result.wrong_tokens > 0 or result.logprob_drift > DRIFT_THRESHOLD


def judge(result: CellResult, arm: Arm, header: Header) -> Verdict:
    """The verdict on one arm of one cell: wrong as soon as one sample is."""
    if header.provenance.state_dtype != "float32":
        return Verdict.CANNOT_TELL
    wrong = any(is_wrong(sample.arms[arm]) for sample in result.samples)
    return Verdict.WRONG if wrong else Verdict.EQUAL


def control_failures(results: Iterable[CellResult]) -> list[ControlFailure]:
    """The negative control: samples at an exact boundary whose unaligned arm is not wrong."""
    return [
        ControlFailure(result.cell, sample.index)
        for result in results
        if result.cell.is_exact_boundary
        for sample in result.samples
        if not is_wrong(sample.arms[Arm.RELOAD_UNALIGNED])
    ]


def check_control(record: Record) -> None:
    """Refuse a record that could not have seen the bug.

    Raises:
        FixcostError: the unaligned arm at an exact boundary was not caught in every sample, or
            no exact boundary was measured.
    """
    boundaries = [result for cell, result in record.cells.items() if cell.is_exact_boundary]
    if not boundaries:
        raise FixcostError(
            "This sweep has no exact boundary of 2 chunks or more, so it could not have seen "
            "the bug: sweep at least 2 chunks."
        )
    if record.header.provenance.state_dtype != "float32":
        return
    failures = control_failures(boundaries)
    if failures:
        first = failures[0]
        total = sum(len(result.samples) for result in boundaries)
        raise FixcostError(
            f"The negative control failed: the known corruption went unseen in {len(failures)} of "
            f"{total} samples, first in sample {first.sample} of [{first.cell.label}], so this "
            f"run could not have seen the bug."
        )
