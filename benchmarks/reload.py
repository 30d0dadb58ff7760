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
    header_of,
    judge,
    read,
    read_metered,
    with_samples,
)
from harness import energy, estimate, numbers, record, trust
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


class Energy(Swept):
    """What a request of each arm takes from the energy meters; without one all are n/a."""

    params = ARM_PARAMS
    param_names = ARM_NAMES

    def setup(self, place: Path, arm: str, scenario: str, offset: str, chunks: int) -> None:
        self.arm = Arm(arm)
        self.result = read_metered(place, scenario, offset, chunks, self.arm)

    def track_energy(self, place: Path, *_: object) -> dict[str, object] | float:
        """Joules of a request; fails where the output is wrong."""
        return self._figures(place, "energy")

    def track_power(self, place: Path, *_: object) -> dict[str, object] | float:
        """Watts while the request is repeated; fails where the output is wrong."""
        return self._figures(place, "power")

    def track_energy_above_idle(self, place: Path, *_: object) -> dict[str, object] | float:
        """Joules of a request beyond those of idling as long; fails where the output is wrong."""
        return self._figures(place, "energy_above_idle")

    def _figures(self, place: Path, metric: str) -> dict[str, object] | float:
        """One figure a window; not a number where the meters do not resolve them."""
        check_output(place, self.result, self.arm)
        figures = energy.METRICS[metric](self.result, self.arm)
        if not energy.mean(figures).is_resolved:
            return math.nan
        return with_samples([one.value for one in figures])

    track_energy.unit = track_energy_above_idle.unit = "joules"  # type: ignore[attr-defined]
    track_power.unit = "watts"  # type: ignore[attr-defined]
    track_energy.version = track_energy_above_idle.version = "1"  # type: ignore[attr-defined]
    track_power.version = "1"  # type: ignore[attr-defined]


class EnergyFixCost(Swept):
    """What the alignment costs in energy, paired within each turn of windows."""

    params = CELL_PARAMS
    param_names = CELL_NAMES

    def setup(self, place: Path, scenario: str, offset: str, chunks: int) -> None:
        self.result = read_metered(place, scenario, offset, chunks, Arm.RELOAD_ALIGNED)

    def track_energy_fix_cost(self, *_: object) -> dict[str, object] | float:
        """Energy of `reload/aligned` over that of `reload/unaligned`, wrong or not."""
        ratios = energy.fix_costs(self.result)
        return with_samples(ratios) if ratios else math.nan

    def track_error(self, *_: object) -> float:
        """How far off the energy of an arm may be, as a share of it, in the worst arm."""
        share = energy.error(self.result)
        return math.nan if share is None else share

    track_energy_fix_cost.unit = "ratio"  # type: ignore[attr-defined]
    track_error.unit = "share"  # type: ignore[attr-defined]
    track_energy_fix_cost.version = track_error.version = "1"  # type: ignore[attr-defined]


class FixCost(Swept):
    """What the alignment costs, paired within each sample, whatever the code under test does."""

    params = CELL_PARAMS
    param_names = CELL_NAMES

    def track_fix_cost(self, *_: object) -> dict[str, object]:
        """TTFT of `reload/aligned` over TTFT of `reload/unaligned`.

        At an exact boundary the unaligned output is wrong: there the denominator is what a wrong
        answer would have taken.
        """
        return with_samples(numbers.fix_costs(self.result))

    def track_noise(self, *_: object) -> dict[str, object]:
        """TTFT of a second `reload/aligned` over that of the first: 1 but for noise."""
        return with_samples(numbers.noise(self.result))

    def track_detectable(self, *_: object) -> float:
        """The smallest change of the fix cost that this cell would have shown."""
        share = estimate.detectable(numbers.noise(self.result))
        return share if math.isfinite(share) else math.nan

    track_fix_cost.unit = track_noise.unit = "ratio"  # type: ignore[attr-defined]
    track_detectable.unit = "share"  # type: ignore[attr-defined]
    track_fix_cost.version = track_noise.version = "1"  # type: ignore[attr-defined]
    track_detectable.version = "1"  # type: ignore[attr-defined]


class Start(Swept):
    """One sample a start of the engine: what commits are compared by (`starts`)."""

    params = CELL_PARAMS
    param_names = CELL_NAMES

    def track_ttft(self, place: Path, *_: object) -> dict[str, object]:
        """Median TTFT of `reload/aligned`, which does the same whatever the commit's alignment."""
        check_output(place, self.result, Arm.RELOAD_ALIGNED)
        seconds = numbers.values(self.result, Arm.RELOAD_ALIGNED, "ttft")
        return with_samples([estimate.median(seconds).value])

    track_ttft.unit = "seconds"  # type: ignore[attr-defined]
    track_ttft.version = "1"  # type: ignore[attr-defined]


class Run(Swept):
    """The sweep as a whole."""

    def setup(self, place: Path) -> None:
        self.header = header_of(place)

    def track_faults(self, place: Path) -> dict[str, object]:
        """Reasons not to trust any figure of this run; `fixcost report` names them."""
        return with_samples([float(len(trust.faults(record.read(place))))])

    def track_identity(self, _place: Path) -> dict[str, object]:
        """A number that stands for what was run: only runs with the same one can be compared."""
        return with_samples([float(numbers.identity(self.header))])

    track_faults.unit, track_identity.unit = "faults", "checksum"  # type: ignore[attr-defined]
    track_faults.version = track_identity.version = "1"  # type: ignore[attr-defined]
