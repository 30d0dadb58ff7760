"""How one sample is taken: one fresh random prompt through all arms of its cell."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness import conditions
from harness.cells import Cell
from harness.engine import Engine, Serving
from harness.errors import FixcostError
from harness.record import ArmResult, Sample
from harness.vocabulary import RELOAD_ARMS, Arm, Scenario

_LARGEST = float(np.finfo(np.float32).max)
FIRST_TOKEN_ID = 3
"""Prompts avoid the ids below it, which mean padding, beginning and end in most vocabularies."""
_ORDERS = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
"""A Latin square balanced for neighbours (Williams 1949, doi:10.1071/CH9490149): in four samples
every reload arm comes once in each place and once right after each other arm."""


def extra_tokens(chunk: int, output_tokens: int) -> int:
    """Tokens that a sample needs beside its prompt, at most."""
    return _extension(chunk) + output_tokens


class VoidSampleError(FixcostError):
    """A sample that did not measure what it should; the text says why."""


@dataclass(frozen=True)
class Draw:
    """What is random about a sample; it follows from the seed, the cell and the index alone."""

    prompt: list[int]
    """Token ids."""
    longer: list[int]
    """The prompt and what the earlier request of `extended` has beyond it."""
    order: tuple[Arm, ...]
    """The reload arms in the order in which they are served."""


def draw(engine: Engine, cell: Cell, seed: int, index: int) -> Draw:
    """Draw the sample with this index of a cell."""
    generator = np.random.default_rng([seed, *cell.key.encode(), index])
    length = cell.prompt_length(engine.chunk)
    longer = generator.integers(
        FIRST_TOKEN_ID, engine.vocabulary, length + _extension(engine.chunk)
    ).tolist()
    return Draw(prompt=longer[:length], longer=longer, order=_order(cell, seed, index))


def _order(cell: Cell, seed: int, index: int) -> tuple[Arm, ...]:
    """Random, and balanced within every four samples of a cell."""
    four, row = divmod(index, len(_ORDERS))
    generator = np.random.default_rng([seed, *cell.key.encode(), four, *b"order"])
    arms = generator.permutation(list(RELOAD_ARMS))
    rows = generator.permutation(_ORDERS)
    return tuple(Arm(arms[place]) for place in rows[row])


def serve_before(engine: Engine, cell: Cell, drawn: Draw) -> Serving:
    """Bring device and host to the state that the cell's scenario starts from.

    Returns what the cold arm gave, which is served on the way.
    """
    engine.evict(host=True)
    cold = engine.serve(drawn.prompt)
    if cell.scenario is Scenario.EXTENDED:
        serve_earlier(engine, cell, drawn)
    engine.settle()
    return cold


def take(engine: Engine, cell: Cell, seed: int, index: int) -> Sample:
    """Take the sample with this index of a cell.

    Nothing is in flight when a timed request starts, and every reload arm starts from an empty
    device cache and the same host memory: what the earlier request left there.

    Raises:
        VoidSampleError: the stores did not land, or an arm was not served from where it should be.
    """
    drawn = draw(engine, cell, seed, index)
    began, before = conditions.snapshot(), engine.stored_bytes()
    cold = serve_before(engine, cell, drawn)
    stored = engine.stored_bytes()
    if stored == before and len(drawn.prompt) >= engine.chunk:
        raise VoidSampleError("nothing of the earlier request was stored in host memory")
    served = {Arm.COLD: cold, Arm.GPU_HIT: engine.serve(drawn.prompt)}
    for arm in drawn.order:
        engine.evict()
        if engine.stored_bytes() != stored:  # an arm left more there (in mode `align` it may)
            serve_earlier(engine, cell, drawn)
            engine.evict()
            stored = engine.stored_bytes()
        with engine.alignment(RELOAD_ARMS[arm]):
            served[arm] = engine.serve(drawn.prompt)
        if (served[arm].cached_tokens > 0) != (served[arm].reload_bytes > 0):
            raise VoidSampleError(
                f"{arm} had {served[arm].cached_tokens} tokens cached and moved "
                f"{served[arm].reload_bytes} bytes from host memory"
            )
    return Sample(
        index=index,
        order=drawn.order,
        conditions=conditions.since(began),
        arms={arm: compare(served[arm], cold, len(drawn.prompt)) for arm in Arm},
    )


def serve_earlier(engine: Engine, cell: Cell, drawn: Draw) -> None:
    """Serve the earlier request of the cell's scenario, from nothing."""
    engine.evict(host=True)
    earlier = drawn.longer if cell.scenario is Scenario.EXTENDED else drawn.prompt
    engine.serve(earlier, tokens=1)


def compare(serving: Serving, cold: Serving, prompt_length: int) -> ArmResult:
    """What an arm gave, beside the cold arm of the same prompt."""
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


def _extension(chunk: int) -> int:
    """How much longer the earlier prompt of `extended` is; 1 token and a chunk behave alike."""
    return chunk // 2


def _drift(logprobs: NDArray[np.float32], cold: NDArray[np.float32]) -> float:
    """The largest absolute difference; the largest float32 where one is not a number."""
    difference = np.abs(np.where(logprobs == cold, 0, logprobs - cold))
    return float(np.nan_to_num(difference, nan=_LARGEST, posinf=_LARGEST).max())
