"""What each arm costs, and whether its output is right, over prompt length in chunks."""

import math
from pathlib import Path

from benchmarks.common import (
    ARM_NAMES,
    ARM_PARAMS,
    CELL_NAMES,
    CELL_PARAMS,
    Swept,
    check_output,
    judge,
    read,
    with_samples,
)
from harness import estimate, numbers, record, trust
from harness.verdict import Verdict
from harness.vocabulary import Arm

WRONG_OUTPUT = {Verdict.EQUAL: 0.0, Verdict.WRONG: 1.0}


class Reload(Swept):
    """Every metric of every arm; where the output is wrong, times fail and the rest remains."""

    params = ARM_PARAMS
    param_names = ARM_NAMES

    def setup(self, place: Path, arm: str, scenario: str, offset: str, chunks: int) -> None:
        self.arm = Arm(arm)
        self.result = read(place, scenario, offset, chunks)

    def track_ttft(self, place: Path, *_: object) -> dict[str, object]:
        """Time to the first token; fails where the output is wrong."""
        check_output(place, self.result, self.arm)
        return with_samples(numbers.values(self.result, self.arm, "ttft"))

    def track_reload_time(self, place: Path, *_: object) -> dict[str, object]:
        """Time that the transfers from host memory took; fails where the output is wrong."""
        check_output(place, self.result, self.arm)
        return with_samples(numbers.values(self.result, self.arm, "reload_time"))

    def track_reload_bytes(self, *_: object) -> dict[str, object]:
        """Bytes moved from host memory."""
        return with_samples(numbers.values(self.result, self.arm, "reload_bytes"))

    def track_recomputed_tokens(self, *_: object) -> dict[str, object]:
        """Prompt tokens that had to be computed again."""
        return with_samples(numbers.values(self.result, self.arm, "recomputed_tokens"))

    def track_wrong_tokens(self, *_: object) -> dict[str, object]:
        """Output tokens that differ from the cold output, in the worst sample."""
        return with_samples([max(numbers.values(self.result, self.arm, "wrong_tokens"))])

    def track_logprob_drift(self, *_: object) -> dict[str, object]:
        """Largest difference of the first token's log-probabilities, in the worst sample."""
        return with_samples([max(numbers.values(self.result, self.arm, "logprob_drift"))])

    def track_wrong_output(self, place: Path, *_: object) -> dict[str, object] | float:
        """1 where the output is wrong, 0 where it is right, not a number where none can tell."""
        outcome = judge(place, self.result, self.arm)
        if outcome is Verdict.CANNOT_TELL:
            return math.nan
        return with_samples([WRONG_OUTPUT[outcome]])

    track_ttft.unit = track_reload_time.unit = "seconds"  # type: ignore[attr-defined]
    track_reload_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_recomputed_tokens.unit = track_wrong_tokens.unit = "tokens"  # type: ignore[attr-defined]
    track_logprob_drift.unit = "nats"  # type: ignore[attr-defined]
    track_wrong_output.unit = "wrong"  # type: ignore[attr-defined]

    # asv compares results of one version only, by default a hash of the source.
    track_ttft.version = track_reload_time.version = "1"  # type: ignore[attr-defined]
    track_reload_bytes.version = track_recomputed_tokens.version = "1"  # type: ignore[attr-defined]
    track_wrong_tokens.version = track_logprob_drift.version = "1"  # type: ignore[attr-defined]
    track_wrong_output.version = "1"  # type: ignore[attr-defined]


class FixCost(Swept):
    """What the alignment costs, paired within each sample, whatever the code under test does."""

    params = CELL_PARAMS
    param_names = CELL_NAMES

    def track_fix_cost(
        self, place: Path, scenario: str, offset: str, chunks: int
    ) -> dict[str, object]:
        """TTFT of `reload/aligned` over TTFT of `reload/unaligned`.

        At an exact boundary the unaligned output is wrong: there the denominator is what a wrong
        answer would have taken.
        """
        return with_samples(numbers.fix_costs(read(place, scenario, offset, chunks)))

    def track_noise(
        self, place: Path, scenario: str, offset: str, chunks: int
    ) -> dict[str, object]:
        """TTFT of a second `reload/aligned` over that of the first: 1 but for noise."""
        return with_samples(numbers.noise(read(place, scenario, offset, chunks)))

    def track_detectable(self, place: Path, scenario: str, offset: str, chunks: int) -> float:
        """The smallest change of the fix cost that this cell would have shown."""
        share = estimate.detectable(numbers.noise(read(place, scenario, offset, chunks)))
        return share if math.isfinite(share) else math.nan

    track_fix_cost.unit = track_noise.unit = "ratio"  # type: ignore[attr-defined]
    track_detectable.unit = "share"  # type: ignore[attr-defined]
    track_fix_cost.version = track_noise.version = "1"  # type: ignore[attr-defined]
    track_detectable.version = "1"  # type: ignore[attr-defined]


class Start(Swept):
    """One sample a start of the engine: what commits are compared by (`starts`)."""

    params = CELL_PARAMS
    param_names = CELL_NAMES

    def track_ttft(self, place: Path, scenario: str, offset: str, chunks: int) -> dict[str, object]:
        """Median TTFT of `reload/aligned`, which does the same whatever the commit's alignment."""
        result = read(place, scenario, offset, chunks)
        check_output(place, result, Arm.RELOAD_ALIGNED)
        seconds = numbers.values(result, Arm.RELOAD_ALIGNED, "ttft")
        return with_samples([estimate.median(seconds).value])

    track_ttft.unit = "seconds"  # type: ignore[attr-defined]
    track_ttft.version = "1"  # type: ignore[attr-defined]


class Run(Swept):
    """The sweep as a whole."""

    def track_faults(self, place: Path) -> dict[str, object]:
        """Reasons not to trust any figure of this run; `fixcost report` names them."""
        return with_samples([float(len(trust.faults(record.read(place))))])

    def track_identity(self, place: Path) -> dict[str, object]:
        """A number that stands for what was run: only runs with the same one can be compared."""
        header = record.read_header(place)
        assert header is not None
        return with_samples([float(numbers.identity(header))])

    track_faults.unit, track_identity.unit = "faults", "checksum"  # type: ignore[attr-defined]
    track_faults.version = track_identity.version = "1"  # type: ignore[attr-defined]
