"""The Mamba-1 kernels of the CPU plugin against the recurrence, token by token in float64."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_reference import Array, Layout, layouts, silu

from harness.cpu import mamba1

EXAMPLES = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32 - 1)
SENTINEL = 1e30


def step(
    state: Array, x: Array, dt: Array, a: Array, b: Array, c: Array, d: Array
) -> tuple[Array, Array]:
    """One token: output (channels,) and the state (channels, state size) after it."""
    state = state * np.exp(dt[:, None] * a) + (dt * x)[:, None] * b
    return (state * c).sum(1) + d * x, state


def tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))


def pieces(layout: Layout) -> tuple[list[int], list[int]]:
    """Where the pieces of the sequences end, cut at block boundaries, and the last of each."""
    ends, last, token = [0], [], 0
    for sequence in layout.sequences:
        for consumed in range(1, sequence.length + 1):
            token += 1
            if layout.target(sequence, consumed) is not None:
                ends.append(token)
        last.append(len(ends) - 2)
    return ends, last


@EXAMPLES
@given(
    layout=layouts(longest=20, shortest=1),
    seed=seeds,
    channels=st.integers(1, 5),
    size=st.integers(1, 4),
    gated=st.booleans(),
)
def test_scan_leaves_a_state_at_every_block_boundary(
    layout: Layout, seed: int, channels: int, size: int, gated: bool
) -> None:
    generator = np.random.default_rng(seed)
    tokens = sum(sequence.length for sequence in layout.sequences)
    x, dt, z = generator.standard_normal((3, channels, tokens))
    b, c = generator.standard_normal((2, size, tokens))
    a = -generator.uniform(0.1, 2, (channels, size))
    d, bias = generator.standard_normal((2, channels))
    before = np.full((layout.blocks, channels, size), SENTINEL)
    for sequence in layout.sequences:
        if (source := layout.source(sequence)) is not None:
            before[source] = generator.standard_normal((channels, size))
    after, expected, token = before.copy(), np.empty_like(x), 0
    for sequence in layout.sequences:
        source = layout.source(sequence)
        state = np.zeros((channels, size)) if source is None else before[source]
        for consumed in range(1, sequence.length + 1):
            steps = np.log1p(np.exp(dt[:, token] + bias))
            expected[:, token], state = step(
                state, x[:, token], steps, a, b[:, token], c[:, token], d
            )
            if (target := layout.target(sequence, consumed)) is not None:
                after[target] = state
            token += 1
    if gated:
        expected = expected * silu(z)

    states = tensor(before)
    ends, last = pieces(layout)
    width = max(len(sequence.blocks) for sequence in layout.sequences)
    rows = [[*s.blocks, *[0] * (width - len(s.blocks))] for s in layout.sequences]
    lengths = [sequence.length for sequence in layout.sequences]
    out = mamba1.selective_scan_fn(
        tensor(x),
        states,
        tensor(dt),
        tensor(a),
        tensor(b),
        tensor(c),
        tensor(d),
        tensor(z) if gated else None,
        tensor(bias),
        delta_softplus=True,
        query_start_loc=torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32),
        cache_indices=torch.tensor(rows, dtype=torch.int32),
        has_initial_state=torch.tensor([s.computed > 0 for s in layout.sequences]),
        block_idx_first_scheduled_token=torch.tensor(
            [s.computed // layout.block_size for s in layout.sequences]
        ),
        initial_state_idx=torch.tensor(
            [max(s.computed - 1, 0) // layout.block_size for s in layout.sequences]
        ),
        cu_chunk_seqlen=torch.tensor(ends),
        last_chunk_indices=torch.tensor(last),
    )
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(states.numpy(), after, rtol=1e-3, atol=1e-3)


def test_scan_of_another_mode_leaves_one_state_a_sequence() -> None:
    generator = np.random.default_rng(0)
    x, dt = generator.standard_normal((2, 3, 5))
    b, c = generator.standard_normal((2, 2, 5))
    a, before = -generator.uniform(0.1, 2, (3, 2)), generator.standard_normal((4, 3, 2))
    after = before.copy()
    state = before[2]
    expected = np.empty_like(x)
    for token in range(5):
        steps = np.log1p(np.exp(dt[:, token]))
        expected[:, token], state = step(
            state, x[:, token], steps, a, b[:, token], c[:, token], np.zeros(3)
        )
    after[2] = state

    states = tensor(before)
    out = mamba1.selective_scan_fn(
        tensor(x),
        states,
        tensor(dt),
        tensor(a),
        tensor(b),
        tensor(c),
        delta_softplus=True,
        query_start_loc=torch.tensor([0, 5]),
        cache_indices=torch.tensor([2]),
        has_initial_state=torch.tensor([True]),
    )
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(states.numpy(), after, rtol=1e-4, atol=1e-4)


@EXAMPLES
@given(
    seed=seeds,
    channels=st.integers(1, 5),
    size=st.integers(1, 4),
    blocks=st.permutations(range(1, 7)),
    count=st.integers(1, 3),
    in_place=st.booleans(),
)
def test_one_more_token_leaves_the_block_that_it_read(
    seed: int, channels: int, size: int, blocks: list[int], count: int, in_place: bool
) -> None:
    generator = np.random.default_rng(seed)
    x, dt, z = generator.standard_normal((3, count, channels))
    b, c = generator.standard_normal((2, count, size))
    a = -generator.uniform(0.1, 2, (channels, size))
    d, bias = generator.standard_normal((2, channels))
    sources = blocks[:count]
    targets = sources if in_place else blocks[count : 2 * count]
    before = np.full((7, channels, size), SENTINEL)
    before[sources] = generator.standard_normal((count, channels, size))
    after, expected = before.copy(), np.empty_like(x)
    for row in range(count):
        steps = np.log1p(np.exp(dt[row] + bias))
        y, after[targets[row]] = step(before[sources[row]], x[row], steps, a, b[row], c[row], d)
        expected[row] = y * silu(z[row])

    states, out = tensor(before), torch.full(x.shape, SENTINEL)
    mamba1.selective_state_update(
        states,
        tensor(x),
        tensor(dt),
        tensor(a),
        tensor(b),
        tensor(c),
        tensor(d),
        tensor(bias),
        z=tensor(z),
        dt_softplus=True,
        state_batch_indices=torch.tensor(sources, dtype=torch.int32),
        dst_state_batch_indices=None if in_place else torch.tensor(targets, dtype=torch.int32),
        out=out,
    )
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(states.numpy(), after, rtol=1e-3, atol=1e-4)
