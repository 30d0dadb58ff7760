"""The cost explained: TTFT as a line in recomputed tokens and reloaded bytes, fitted by a run.

    TTFT = base + per_token * recomputed tokens + per_byte * reloaded bytes

Each reload arm of each cell is one point, the trimmed mean of its log times. The line is fitted to
the logarithms, for noise multiplies, with a loss that outliers hardly move
(`scipy.optimize.least_squares`, soft L1) and coefficients that cannot be negative. Their intervals
come from the bootstrap over samples, in each cell apart (`scipy.stats.bootstrap`, percentile).

A prediction's interval is that of the jackknife+ (Barber et al., Annals of Statistics 49, 2021,
doi:10.1214/20-AOS1965): a model for each cell left out, widened by how far it missed that cell. It
holds what the line cannot bend to as well as noise, as far as a new cell is like the measured ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from harness import numbers, window
from harness.cells import Cell
from harness.errors import FixcostError
from harness.estimate import CONFIDENCE, TRIM, Estimate, ratio
from harness.record import CellResult, Group, Record
from harness.vocabulary import RELOAD_ARMS, Alignment, Arm

RESAMPLES = 400
OUTLIER = 0.05
"""Misses beyond this share count linearly instead of squared."""
_ARMS = {
    Alignment.ALIGNED: Arm.RELOAD_ALIGNED,
    Alignment.UNALIGNED: Arm.RELOAD_UNALIGNED,
}

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Features, shape (points, 3), of which the first is 1; and log seconds, shape (points,)."""


@dataclass(frozen=True)
class HeldOut:
    """One cell against what the model of all other cells says of it."""

    cell: Cell
    measured: float
    """The fix cost."""
    predicted: Estimate
    """With the interval that a prediction for this cell would have had."""


@dataclass(frozen=True)
class CostModel:
    """The fitted line. Times in seconds."""

    base: Estimate
    per_token: Estimate
    per_byte: Estimate
    held_out: list[HeldOut]
    chunk: int
    """Of the run, in tokens."""
    groups: list[Group]
    tokens_measured: tuple[int, int]
    """Fewest and most recomputed tokens that the run saw."""
    bytes_measured: tuple[int, int]
    lengths_measured: tuple[int, int]
    draws: list[tuple[float, float, float]]
    """The three coefficients, resampled."""
    without: list[tuple[float, float, float]]
    """The three coefficients with each cell of `held_out` left out in turn."""


@dataclass(frozen=True)
class Prediction:
    """What the model says of one prompt length and chunk, all of the prompt being stored."""

    prompt_length: int
    chunk: int
    recomputed_tokens: dict[Alignment, int]
    reload_bytes: dict[Alignment, int]
    ttft: dict[Alignment, float]
    fix_cost: Estimate
    beyond: str
    """What lies beyond the range that was measured, or ""."""


def fit(record: Record) -> CostModel:
    """Fit the line to a finished run.

    Raises:
        FixcostError: the run has too few cells, or does not follow the rules of cache mode `all`.
    """
    results = list(record.cells.values())
    check_rules(record)
    if len({result.cell for result in results if result.cell.is_exact_boundary}) < 2:
        raise FixcostError("A cost model needs two exact boundaries at least: sweep more chunks.")
    tables, times = [_features(r) for r in results], [_log_times(r) for r in results]
    points = [
        (table, stats.trim_mean(logs, TRIM, axis=1))
        for table, logs in zip(tables, times, strict=True)
    ]
    whole = _solve(points)
    draws = _resampled(tables, times)
    without = [_solve(points[:i] + points[i + 1 :]) for i in range(len(points))]
    misses = [
        abs(_log_ratio(line, result, record) - math.log(ratio(numbers.fix_costs(result)).value))
        for line, result in zip(without, results, strict=True)
    ]
    features = np.concatenate(tables)
    lengths = [result.prompt_length for result in results]
    base, per_token, per_byte = (_estimate(whole[i], draws[:, i]) for i in range(3))
    return CostModel(
        base=base,
        per_token=per_token,
        per_byte=per_byte,
        held_out=[
            HeldOut(
                cell=result.cell,
                measured=ratio(numbers.fix_costs(result)).value,
                predicted=_held_out(
                    _log_ratio(without[place], result, record), np.delete(misses, place)
                ),
            )
            for place, result in enumerate(results)
        ],
        chunk=record.header.chunk,
        groups=record.header.groups,
        tokens_measured=_range(features[:, 1]),
        bytes_measured=_range(features[:, 2]),
        lengths_measured=(min(lengths), max(lengths)),
        draws=[tuple(draw) for draw in draws.tolist()],
        without=[tuple(line) for line in np.array(without).tolist()],
    )


def check_rules(record: Record) -> None:
    """Refuse a run in which the two alignments did not do what `window` says.

    Raises:
        FixcostError: they did not, as in cache mode `align`.
    """
    chunk = record.header.chunk
    for result in record.cells.values():
        for alignment, arm in _ARMS.items():
            cached = window.cached_tokens(result.prompt_length, chunk, alignment)
            rule = (cached, window.reload_bytes(record.header.groups, chunk, cached))
            for sample in result.samples:
                if (sample.arms[arm].cached_tokens, sample.arms[arm].reload_bytes) != rule:
                    raise FixcostError(
                        f"This run restored something else than the rules of cache mode all have, "
                        f"first in [{result.cell.label}], so nothing can be predicted from it."
                    )


def predict(model: CostModel, prompt_length: int, chunk: int) -> Prediction:
    """The fix cost of one prompt length at one chunk size, both in tokens."""
    cached = {a: window.cached_tokens(prompt_length, chunk, a) for a in _ARMS}
    recomputed = {a: prompt_length - tokens for a, tokens in cached.items()}
    moved = {a: window.reload_bytes(model.groups, chunk, cached[a]) for a in _ARMS}
    features = np.array([[1, recomputed[a], moved[a]] for a in _ARMS], float)
    line = np.array([model.base.value, model.per_token.value, model.per_byte.value])
    seconds = features @ line
    ratios = np.array([_log(features @ np.array(other)) for other in model.without])
    misses = np.array([abs(math.log(one.predicted.value / one.measured)) for one in model.held_out])
    return Prediction(
        prompt_length=prompt_length,
        chunk=chunk,
        recomputed_tokens=recomputed,
        reload_bytes=moved,
        ttft=dict(zip(_ARMS, seconds.tolist(), strict=True)),
        fix_cost=_jackknife_plus(ratios, misses, _log(seconds)),
        beyond=beyond(model, prompt_length, chunk),
    )


def beyond(model: CostModel, prompt_length: int, chunk: int) -> str:
    """What of a prompt lies beyond the range that the model was measured in, or ""."""
    cached = [window.cached_tokens(prompt_length, chunk, a) for a in _ARMS]
    ranges = {
        "prompt length": (model.lengths_measured, [prompt_length]),
        "recomputed tokens": (model.tokens_measured, [prompt_length - c for c in cached]),
        "reloaded bytes": (
            model.bytes_measured,
            [window.reload_bytes(model.groups, chunk, c) for c in cached],
        ),
    }
    return ", ".join(
        name
        for name, ((low, high), values) in ranges.items()
        if min(values) < low or max(values) > high
    )


def added_seconds(model: CostModel, prompt_length: int, chunk: int) -> NDArray[np.float64]:
    """What the alignment adds to the TTFT of one prompt: first the best guess, then every draw."""
    cached = {a: window.cached_tokens(prompt_length, chunk, a) for a in _ARMS}
    tokens = cached[Alignment.UNALIGNED] - cached[Alignment.ALIGNED]
    moved = {a: window.reload_bytes(model.groups, chunk, cached[a]) for a in _ARMS}
    fewer = moved[Alignment.UNALIGNED] - moved[Alignment.ALIGNED]
    lines = np.array([(0, model.per_token.value, model.per_byte.value), *model.draws])
    return np.asarray(lines[:, 1] * tokens - lines[:, 2] * fewer)


def _features(result: CellResult) -> NDArray[np.float64]:
    """1, tokens and bytes of every reload arm, shape (arms, 3)."""
    arms = [result.samples[0].arms[arm] for arm in RELOAD_ARMS]
    return np.array([(1.0, arm.recomputed_tokens, arm.reload_bytes) for arm in arms])


def _log_times(result: CellResult) -> NDArray[np.float64]:
    """Shape (arms, samples)."""
    return np.log([numbers.values(result, arm, "ttft") for arm in RELOAD_ARMS])


def _solve(points: Sequence[Points]) -> NDArray[np.float64]:
    """Base, seconds per token and seconds per byte."""
    features = np.concatenate([table for table, _ in points])
    logs = np.concatenate([seconds for _, seconds in points])
    scale = features.max(axis=0)
    scale[scale == 0] = 1.0
    scaled = features / scale
    found = optimize.least_squares(
        lambda line: np.log(scaled @ line) - logs,
        np.full(3, float(np.exp(logs.mean())) / 3),
        jac=lambda line: scaled / (scaled @ line)[:, None],
        bounds=(1e-12, np.inf),
        loss="soft_l1",
        f_scale=OUTLIER,
    )
    return np.asarray(found.x / scale)


def _resampled(
    tables: Sequence[NDArray[np.float64]], times: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The coefficients of `RESAMPLES` resampled runs, shape (resamples, 3)."""

    def refit(*chosen: NDArray[np.int_]) -> NDArray[np.float64]:
        drawn = (logs[:, picked] for logs, picked in zip(times, chosen, strict=True))
        centres = [stats.trim_mean(logs, TRIM, axis=1) for logs in drawn]
        return _solve(list(zip(tables, centres, strict=True)))

    outcome = stats.bootstrap(
        [np.arange(logs.shape[1]) for logs in times],
        refit,
        n_resamples=RESAMPLES,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return np.asarray(outcome.bootstrap_distribution).reshape(3, -1).T


def _estimate(value: float, draws: NDArray[np.float64]) -> Estimate:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(value), float(low), float(high), len(draws))


def _held_out(centre: float, misses: NDArray[np.float64]) -> Estimate:
    return _jackknife_plus(np.full(len(misses), centre), misses, centre)


def _jackknife_plus(
    logs: NDArray[np.float64], misses: NDArray[np.float64], centre: float
) -> Estimate:
    """Of a fix cost, from the log ratios of the models with one cell left out and their misses."""
    count = len(logs)
    rank = math.ceil(CONFIDENCE * (count + 1))
    if rank > count:
        return Estimate(math.exp(centre), 0.0, math.inf, count)
    low = -np.sort(-(logs - misses))[rank - 1]
    high = np.sort(logs + misses)[rank - 1]
    return Estimate(math.exp(centre), math.exp(low), math.exp(high), count)


def _log_ratio(line: NDArray[np.float64], result: CellResult, record: Record) -> float:
    chunk, groups = record.header.chunk, record.header.groups
    cached = [window.cached_tokens(result.prompt_length, chunk, a) for a in _ARMS]
    features = [
        (1.0, result.prompt_length - c, window.reload_bytes(groups, chunk, c)) for c in cached
    ]
    return _log(np.array(features) @ line)


def _log(seconds: NDArray[np.float64]) -> float:
    """Of the ratio of aligned to unaligned."""
    return float(np.log(seconds[0] / seconds[1]))


def _range(values: NDArray[np.float64]) -> tuple[int, int]:
    return int(values.min()), int(values.max())
