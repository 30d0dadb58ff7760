"""Every kernel of the CPU plugin against the plain recurrence, over random layouts."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_reference import Layout, convolve, layouts, silu, step, step_size

from harness import vllm_names
from harness.cpu import checkpoint, conv, plugin, scan, update

EXAMPLES = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32 - 1)
SENTINEL = 1e30
"""What blocks hold that must not be read."""


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    """Our kernels in place, and the backend that an engine would choose for vLLM's update."""
    from vllm.config.mamba import MambaConfig
    from vllm.model_executor.layers.mamba.ops.ssu_dispatch import initialize_mamba_ssu_backend

    plugin.register()
    _, groups = vllm_names.offloading_spec(tokens_per_block=16)
    initialize_mamba_ssu_backend(MambaConfig(), groups)


def int_tensor(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def block_rows(layout: Layout) -> torch.Tensor:
    width = max(len(sequence.blocks) for sequence in layout.sequences)
    rows = [[*s.blocks, *[0] * (width - len(s.blocks))] for s in layout.sequences]
    return torch.tensor(rows, dtype=torch.int32)


def poisoned(layout: Layout, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """States of all blocks, where only those that are gone on from hold a number."""
    states = np.full((layout.blocks, *shape), SENTINEL)
    for sequence in layout.sequences:
        if (source := layout.source(sequence)) is not None:
            states[source] = generator.standard_normal(shape)
    return states


def float_tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))


@EXAMPLES
@given(
    layout=layouts(),
    seed=seeds,
    channels=st.integers(1, 5),
    width=st.integers(2, 4),
    has_bias=st.booleans(),
    activation=st.sampled_from(["silu", "swish", None]),
    spare=st.integers(0, 2),
)
def test_convolution_of_a_prefill(
    layout: Layout,
    seed: int,
    channels: int,
    width: int,
    has_bias: bool,
    activation: str | None,
    spare: int,
) -> None:
    generator = np.random.default_rng(seed)
    lengths = [sequence.length for sequence in layout.sequences]
    x = generator.standard_normal((channels, sum(lengths)))
    weight = generator.standard_normal((channels, width))
    bias = generator.standard_normal(channels) if has_bias else None
    before = poisoned(layout, (channels, width - 1), generator)
    expected, after = convolve(layout, x, weight, bias, before, activation is not None)

    kept = float_tensor(before)
    states = torch.full((layout.blocks, channels, width - 1 + spare), -SENTINEL)
    states[:, :, : width - 1] = kept
    ends = [s.computed + max(s.length, 1) for s in layout.sequences]
    out = conv.causal_conv1d_fn(
        float_tensor(x),
        float_tensor(weight),
        None if bias is None else float_tensor(bias),
        states,
        int_tensor([0, *np.cumsum(lengths).tolist()]),
        cache_indices=block_rows(layout),
        has_initial_state=torch.tensor([s.computed > 0 for s in layout.sequences]),
        activation=activation,
        block_idx_first_scheduled_token=int_tensor(
            [s.computed // layout.block_size for s in layout.sequences]
        ),
        block_idx_last_scheduled_token=int_tensor([(e - 1) // layout.block_size for e in ends]),
        initial_state_idx=int_tensor(
            [max(s.computed - 1, 0) // layout.block_size for s in layout.sequences]
        ),
        num_computed_tokens=int_tensor([s.computed for s in layout.sequences]),
        block_size_to_align=layout.block_size,
    )
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(states[:, :, : width - 1].numpy(), after, rtol=1e-6)
    assert (states[:, :, width - 1 :] == -SENTINEL).all()


@EXAMPLES
@given(
    layout=layouts(longest=1, shortest=1),
    seed=seeds,
    channels=st.integers(1, 5),
    width=st.integers(2, 4),
    has_bias=st.booleans(),
)
def test_convolution_of_one_more_token(
    layout: Layout, seed: int, channels: int, width: int, has_bias: bool
) -> None:
    generator = np.random.default_rng(seed)
    goes_on = [s for s in layout.sequences if s.computed > 0]
    layout = Layout(layout.block_size, layout.blocks, tuple(goes_on))
    if not goes_on:
        return
    x = generator.standard_normal((channels, len(goes_on)))
    weight = generator.standard_normal((channels, width))
    bias = generator.standard_normal(channels) if has_bias else None
    before = poisoned(layout, (channels, width - 1), generator)
    expected, after = convolve(layout, x, weight, bias, before, activate=True)

    states = float_tensor(before)
    out = conv.causal_conv1d_update(
        float_tensor(x.T),
        states,
        float_tensor(weight),
        None if bias is None else float_tensor(bias),
        "silu",
        conv_state_indices=block_rows(layout),
        block_idx_last_scheduled_token=int_tensor(
            [s.computed // layout.block_size for s in goes_on]
        ),
        initial_state_idx=int_tensor([(s.computed - 1) // layout.block_size for s in goes_on]),
    )
    np.testing.assert_allclose(out.numpy(), expected.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(states.numpy(), after, rtol=1e-6)


@st.composite
def scans(draw: st.DrawFn) -> tuple[list[list[int]], int, int, int, int]:
    """Lengths of the chunks of each sequence; groups, heads a group, head size, state size."""
    chunks = st.lists(st.integers(1, 8), min_size=1, max_size=4)
    sequences = draw(st.lists(chunks, min_size=1, max_size=3))
    groups, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return sequences, groups, heads, draw(st.sampled_from([8, 16])), draw(st.sampled_from([16, 32]))


@EXAMPLES
@given(
    shape=scans(),
    seed=seeds,
    goes_on=st.booleans(),
    skips=st.booleans(),
    has_bias=st.booleans(),
    gated=st.booleans(),
    limit=st.sampled_from([(0.0, float("inf")), (0.2, 0.9)]),
)
def test_scan_returns_the_state_after_every_chunk(
    shape: tuple[list[list[int]], int, int, int, int],
    seed: int,
    goes_on: bool,
    skips: bool,
    has_bias: bool,
    gated: bool,
    limit: tuple[float, float],
) -> None:
    sequences, groups, per_group, head, size = shape
    heads, tokens = groups * per_group, sum(map(sum, sequences))
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((tokens, heads, head))
    z = generator.standard_normal((tokens, heads, head)) if gated else None
    dt = generator.standard_normal((tokens, heads))
    a = -generator.uniform(0.1, 2, heads)
    b, c = generator.standard_normal((2, tokens, groups, size))
    d = generator.standard_normal(heads) if skips else None
    bias = generator.standard_normal(heads) if has_bias else None
    initial = generator.standard_normal((len(sequences), heads, head, size))

    steps = step_size(dt, bias, True, limit)
    expected, states, token = np.empty_like(x), [], 0
    for index, chunks in enumerate(sequences):
        state = initial[index] if goes_on else np.zeros_like(initial[index])
        for length in chunks:
            for _ in range(length):
                y, state = step(state, x[token], steps[token], a, b[token], c[token], d)
                expected[token] = y if z is None else y * silu(z[token])
                token += 1
            states.append(state)

    out = torch.full(x.shape, SENTINEL)
    returned = scan.mamba_chunk_scan_combined_varlen(
        float_tensor(x),
        float_tensor(dt),
        float_tensor(a),
        float_tensor(b),
        float_tensor(c),
        8,
        out=out,
        cu_chunk_seqlens=int_tensor([0, *np.cumsum(np.concatenate(sequences)).tolist()]),
        last_chunk_indices=int_tensor((np.cumsum([len(s) for s in sequences]) - 1).tolist()),
        D=None if d is None else float_tensor(d),
        z=None if z is None else float_tensor(z),
        dt_bias=None if bias is None else float_tensor(bias),
        initial_states=float_tensor(initial) if goes_on else None,
        dt_softplus=True,
        dt_limit=limit,
        return_intermediate_states=True,
    )
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(returned.numpy(), np.stack(states), rtol=1e-3, atol=1e-3)


@EXAMPLES
@given(
    seed=seeds,
    groups=st.integers(1, 3),
    per_group=st.integers(1, 3),
    blocks=st.permutations(range(1, 7)),
    count=st.integers(1, 3),
    in_place=st.booleans(),
)
def test_one_more_token_leaves_the_block_that_it_read(
    seed: int, groups: int, per_group: int, blocks: list[int], count: int, in_place: bool
) -> None:
    heads, head, size = groups * per_group, 8, 16
    generator = np.random.default_rng(seed)
    x, dt = (
        generator.standard_normal((count, heads, head)),
        generator.standard_normal((count, heads)),
    )
    a, d, bias = -generator.uniform(0.1, 2, heads), *generator.standard_normal((2, heads))
    b, c = generator.standard_normal((2, count, groups, size))
    sources = blocks[:count]
    targets = sources if in_place else blocks[count : 2 * count]
    before = np.full((7, heads, head, size), SENTINEL)
    before[sources] = generator.standard_normal((count, heads, head, size))
    after, expected = before.copy(), np.empty_like(x)
    for row in range(count):
        steps = step_size(dt[row], bias, True, (0, np.inf))
        expected[row], after[targets[row]] = step(
            before[sources[row]], x[row], steps, a, b[row], c[row], d
        )

    states, out = float_tensor(before), torch.full(x.shape, SENTINEL)
    update.selective_state_update(
        states,
        float_tensor(x),
        float_tensor(dt)[:, :, None].expand(-1, -1, head),
        float_tensor(a)[:, None, None].expand(-1, head, size),
        float_tensor(b),
        float_tensor(c),
        float_tensor(d)[:, None].expand(-1, head),
        dt_bias=float_tensor(bias)[:, None].expand(-1, head),
        dt_softplus=True,
        state_batch_indices=int_tensor(sources),
        dst_state_batch_indices=int_tensor(targets),
        out=out,
    )
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(states.numpy(), after, rtol=1e-3, atol=1e-4)


@EXAMPLES
@given(
    seed=seeds,
    lengths=st.lists(st.integers(4, 12), min_size=1, max_size=4),
    blocks=st.permutations(range(6)),
    width=st.integers(1, 4),
    spare=st.integers(0, 2),
    data=st.data(),
)
def test_checkpoint_is_what_the_state_was_after_so_many_tokens(
    seed: int, lengths: list[int], blocks: list[int], width: int, spare: int, data: st.DataObject
) -> None:
    """What a decode would find: the last inputs before the checkpoint, and the state there."""
    consumed = [data.draw(st.sampled_from([0, *range(width, n + 1)])) for n in lengths]
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((3, sum(lengths)))
    after_every_token = generator.standard_normal((sum(lengths), 2, 3, 4))
    convolution = np.full((6, 3, width + spare), SENTINEL)
    states = np.full((6, 2, 3, 4), SENTINEL)
    expected = convolution.copy(), states.copy()
    starts = np.cumsum([0, *lengths])
    for start, count, block in zip(starts, consumed, blocks, strict=False):
        if count:
            for back in range(1, width + 1):
                expected[0][block, :, width - back] = x[:, start + count - back]
            expected[1][block] = after_every_token[start + count - 1]

    found = float_tensor(convolution), float_tensor(states)
    checkpoint.store_prefill_checkpoint(
        SimpleNamespace(
            checkpoint_offsets=int_tensor(consumed),
            state_indices=int_tensor(blocks[: len(lengths)]),
        ),
        int_tensor([int(s) + max(c, 1) - 1 for s, c in zip(starts, consumed, strict=False)]),
        float_tensor(x),
        found[0],
        float_tensor(after_every_token),
        found[1],
        int_tensor(starts.tolist()),
        state_len=width,
    )
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.astype(np.float32))


def test_calls_of_other_modes_go_to_vllms_own_kernels() -> None:
    from vllm.model_executor.layers.mamba.ops.causal_conv1d import causal_conv1d_fn

    torch.manual_seed(0)
    x, weight, bias = torch.randn(3, 9), torch.randn(3, 4), torch.randn(3)
    states = torch.randn(5, 3, 3)
    theirs = states.clone()
    arguments = (int_tensor([0, 4, 9]), int_tensor([2, 4]), torch.tensor([True, False]))
    ours = conv.causal_conv1d_fn(x, weight, bias, states, *arguments)
    assert torch.equal(ours, causal_conv1d_fn(x, weight, bias, theirs, *arguments))
    assert torch.equal(states, theirs)


def test_speculative_decoding_is_refused() -> None:
    indices, first = torch.ones(1, 2, dtype=torch.int32), int_tensor([0])
    with pytest.raises(NotImplementedError, match="Speculative"):
        conv.causal_conv1d_update(
            torch.zeros(1, 3),
            torch.zeros(2, 3, 3),
            torch.zeros(3, 4),
            conv_state_indices=indices,
            block_idx_last_scheduled_token=first,
            initial_state_idx=first,
            num_accepted_tokens=first,
        )


def test_registering_twice_changes_nothing() -> None:
    from vllm.model_executor.layers import utils
    from vllm.model_executor.layers.mamba import mamba_mixer2

    names = ("causal_conv1d_fn", "mamba_chunk_scan_combined_varlen", "selective_state_update")
    once = [getattr(mamba_mixer2, name) for name in names] + [utils.dispatch_cpu_unquantized_gemm]
    plugin.register()
    twice = [getattr(mamba_mixer2, name) for name in names] + [utils.dispatch_cpu_unquantized_gemm]
    assert once == twice
    assert once[:3] == [
        conv.causal_conv1d_fn,
        scan.mamba_chunk_scan_combined_varlen,
        update.selective_state_update,
    ]
