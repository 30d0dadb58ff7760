"""Named sweeps along one axis: the same cells again and again, one setting changed.

Each value has an engine and a record of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness import cells, estimate, numbers, sweep, verdict
from harness.architectures import ARCHITECTURES
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.profiles import Profile
from harness.record import Oracle, Record
from harness.verdict import Verdict
from harness.vocabulary import Arm, CacheMode

CHUNKS = (2, 3)
"""Prompt lengths by default; fewer than in a single sweep, for there are several."""
BLOCKS_PER_CHUNK = (1, 2, 4)
DTYPES = (
    ("float32", "float32"),
    ("float32", "float16"),
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("bfloat16", "bfloat16"),
    ("float16", "float16"),
)
"""Of the model, and of the recurrent state."""


@dataclass(frozen=True)
class Point:
    """One value of an axis, at exact boundaries; what could not be measured is None."""

    value: str
    place: Path
    """Where its record is."""
    error: str = ""
    """Why there is none."""
    chunk: int | None = None
    outputs: dict[Arm, Verdict] | None = None
    recomputed_tokens: dict[Arm, float] | None = None
    """At the shortest of them."""
    fix_cost: Estimate | None = None
    oracle: Oracle | None = None


def names() -> list[str]:
    """What `--axis` takes."""
    return ["architecture", "blocks-per-chunk", "cache-mode", "dtype"]


def values(axis: str, profile: Profile) -> dict[str, Profile]:
    """The profile at each value of an axis.

    Raises:
        FixcostError: there is no such axis, or the profile's model is given and cannot change.
    """
    if axis == "blocks-per-chunk":
        return {str(count): replace(profile, blocks_per_chunk=count) for count in BLOCKS_PER_CHUNK}
    if axis == "cache-mode":
        return {mode.value: replace(profile, cache_mode=mode) for mode in CacheMode}
    if axis == "dtype":
        return {
            f"{model}, state {state}": replace(profile, dtype=model, state_dtype=state)
            for model, state in DTYPES
        }
    if axis == "architecture":
        if profile.model is not None:
            raise FixcostError(f"The architecture of {profile.model} cannot be changed.")
        return {name: replace(profile, architecture=name) for name in ARCHITECTURES}
    raise FixcostError(f"There is no axis {axis!r}; choose one of {', '.join(names())}.")


def run(axis: str, profile: Profile, place: Path, seed: int) -> Iterator[Point]:
    """Sweep each value of an axis into a folder of its own below `place`, and yield its figures.

    A value that cannot be run yields the reason, and the next one is tried.

    Raises:
        FixcostError: see `values`.
    """
    for value, chosen in values(axis, profile).items():
        own = place / value.replace(", state ", "-")
        try:
            yield _point(value, own, sweep.run(chosen, cells.grid(chosen.chunks), own, seed=seed))
        except FixcostError as error:
            yield Point(value, own, error=str(error))


def _point(value: str, place: Path, record: Record) -> Point:
    oracle = verdict.oracle_of(record)
    boundaries = [result for cell, result in record.cells.items() if cell.is_exact_boundary]
    fewest = min(result.cell.chunks for result in boundaries)
    smallest = [result for result in boundaries if result.cell.chunks == fewest]
    arms = (Arm.GPU_HIT, Arm.RELOAD_SHIPPED, Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED)

    def worst(arm: Arm) -> Verdict:
        found = {verdict.judge(result, arm, oracle) for result in boundaries}
        return next(
            one for one in (Verdict.CANNOT_TELL, Verdict.WRONG, Verdict.EQUAL) if one in found
        )

    def recomputed(arm: Arm) -> float:
        drawn = [v for result in smallest for v in numbers.values(result, arm, "recomputed_tokens")]
        return estimate.median(drawn).value

    return Point(
        value=value,
        place=place,
        chunk=record.header.chunk,
        outputs={arm: worst(arm) for arm in arms},
        recomputed_tokens={arm: recomputed(arm) for arm in arms},
        fix_cost=estimate.pooled(map(numbers.fix_costs, boundaries)),
        oracle=oracle,
    )
