"""How one sample is taken: one fresh random prompt through all arms of its cell."""

import numpy as np
from numpy.typing import NDArray

from harness import hardware
from harness.cells import Cell
from harness.engine import Engine, Serving
from harness.record import ArmResult, Sample
from harness.vocabulary import RELOAD_ARMS, Arm, Scenario

_LARGEST = float(np.finfo(np.float32).max)
FIRST_TOKEN_ID = 3
"""Prompts avoid the ids below it, which mean padding, beginning and end in most vocabularies."""


def extra_tokens(chunk: int, output_tokens: int) -> int:
    """Tokens that a sample needs beside its prompt, at most."""
    return _extension(chunk) + output_tokens


def take(engine: Engine, cell: Cell, seed: int, index: int) -> Sample:
    """Take the sample with this index of a cell.

    The prompt, its extension and the order of the reload arms follow from `seed`, the cell and
    `index`. Nothing is in flight when a timed request starts, and every reload arm starts from
    an empty device cache and the same host memory.
    """
    generator = np.random.default_rng([seed, *cell.key.encode(), index])
    length = cell.prompt_length(engine.chunk)
    ids = generator.integers(
        FIRST_TOKEN_ID, engine.vocabulary, length + _extension(engine.chunk)
    ).tolist()
    prompt, longer = ids[:length], ids
    order = [Arm(arm) for arm in generator.permutation(list(RELOAD_ARMS))]
    load = hardware.load_average()

    engine.evict(host=True)
    served = {Arm.COLD: engine.serve(prompt)}
    if cell.scenario is Scenario.EXTENDED:
        engine.evict(host=True)
        engine.serve(longer)
    engine.settle()
    served[Arm.GPU_HIT] = engine.serve(prompt)
    for arm in order:
        engine.evict()
        with engine.alignment(RELOAD_ARMS[arm]):
            served[arm] = engine.serve(prompt)

    cold = served[Arm.COLD]
    return Sample(
        index=index,
        order=tuple(order),
        load_average=load,
        arms={arm: _compare(served[arm], cold, length) for arm in Arm},
    )


def _extension(chunk: int) -> int:
    """How much longer the earlier prompt of `extended` is; 1 token and a chunk behave alike."""
    return chunk // 2


def _compare(serving: Serving, cold: Serving, prompt_length: int) -> ArmResult:
    differs = [a != b for a, b in zip(serving.tokens, cold.tokens, strict=True)]
    return ArmResult(
        ttft=serving.ttft,
        cached_tokens=serving.cached_tokens,
        recomputed_tokens=prompt_length - serving.cached_tokens,
        reload_bytes=serving.reload_bytes,
        reload_time=serving.reload_time,
        wrong_tokens=sum(differs),
        first_wrong=differs.index(True) if any(differs) else None,
        logprob_drift=_drift(serving.logprobs, cold.logprobs),
    )


def _drift(logprobs: NDArray[np.float32], cold: NDArray[np.float32]) -> float:
    """The largest absolute difference; the largest float32 where one is not a number."""
    difference = np.abs(np.where(logprobs == cold, 0, logprobs - cold))
    return float(np.nan_to_num(difference, nan=_LARGEST, posinf=_LARGEST).max())
