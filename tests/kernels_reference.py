"""The Mamba-2 recurrence and its convolution one token at a time, in float64: slow and plain.

A layout is what vLLM tells its kernels about some sequences: how many tokens each has behind it
and before it, and which blocks hold its states.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sequence:
    computed: int
    """Tokens that were consumed before."""
    length: int
    """Tokens to consume now."""
    blocks: tuple[int, ...]
    """The blocks of this sequence, first to last."""


@dataclass(frozen=True)
class Layout:
    block_size: int
    blocks: int
    """All blocks there are, used or not."""
    sequences: tuple[Sequence, ...]

    def source(self, sequence: Sequence) -> int | None:
        """The block with the state to go on from."""
        if sequence.computed == 0:
            return None
        return sequence.blocks[(sequence.computed - 1) // self.block_size]

    def target(self, sequence: Sequence, consumed: int) -> int | None:
        """The block that gets the state after `consumed` of the new tokens, if one does."""
        position = sequence.computed + consumed
        if position % self.block_size == 0 or consumed == sequence.length:
            return sequence.blocks[(position - 1) // self.block_size]
        return None


@st.composite
def layouts(draw: st.DrawFn, longest: int = 20, shortest: int = 0) -> Layout:
    block_size = draw(st.integers(1, 6))
    sizes = draw(
        st.lists(
            st.tuples(st.integers(0, 12), st.integers(shortest, longest)), min_size=1, max_size=3
        )
    )
    needed = [-(-(computed + max(length, 1)) // block_size) for computed, length in sizes]
    blocks = sum(needed) + 2
    free = draw(st.permutations(range(1, blocks)))
    sequences = []
    for (computed, length), count in zip(sizes, needed, strict=True):
        own, free = tuple(free[:count]), free[count:]
        sequences.append(Sequence(computed, length, own))
    return Layout(block_size, blocks, tuple(sequences))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def convolve(
    layout: Layout, x: Array, weight: Array, bias: Array | None, states: Array, activate: bool
) -> tuple[Array, Array]:
    """Outputs (channels, tokens) and the states (blocks, channels, width - 1) afterwards."""
    out, after, token = np.empty_like(x), states.copy(), 0
    for sequence in layout.sequences:
        source = layout.source(sequence)
        window = np.zeros_like(states[0]) if source is None else states[source]
        for consumed in range(1, sequence.length + 1):
            seen = np.concatenate([window, x[:, token : token + 1]], axis=1)
            y = (seen * weight).sum(1) + (0 if bias is None else bias)
            out[:, token] = silu(y) if activate else y
            window, token = seen[:, 1:], token + 1
            target = layout.target(sequence, consumed)
            if target is not None:
                after[target] = window
    return out, after


def step(
    state: Array, x: Array, dt: Array, a: Array, b: Array, c: Array, d: Array | None
) -> tuple[Array, Array]:
    """One token: output (heads, head size) and the state (heads, head size, size) after it."""
    repeat = x.shape[0] // b.shape[0]
    b, c = np.repeat(b, repeat, axis=0), np.repeat(c, repeat, axis=0)
    state = state * np.exp(dt * a)[:, None, None] + (dt[:, None] * x)[:, :, None] * b[:, None, :]
    y = (state * c[:, None, :]).sum(-1)
    return (y if d is None else y + d[:, None] * x), state


def step_size(dt: Array, bias: Array | None, softplus: bool, limit: tuple[float, float]) -> Array:
    dt = dt if bias is None else dt + bias
    return np.clip(np.log1p(np.exp(dt)) if softplus else dt, *limit)
