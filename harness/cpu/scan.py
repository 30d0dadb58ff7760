"""The Mamba-2 scan that returns the state after every chunk of the model, for cache mode `all`.

vLLM's CPU operator (`mamba_chunk_scan_fwd_cpu`) returns only the state at the end of a sequence.
Called a chunk at a time, each state the next one's start, it gives them all.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from harness import vllm_names


def mamba_chunk_scan_combined_varlen(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    *,
    out: Tensor,
    cu_chunk_seqlens: Tensor,
    last_chunk_indices: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_intermediate_states: bool = False,
    state_dtype: torch.dtype | None = None,
    **options: Any,
) -> Tensor:
    """Scan several sequences; the recurrence is that of Mamba-2 (arXiv 2405.21060, section 2).

    Args:
        x: inputs, shape (tokens, heads, head size), the sequences one after the other.
        dt: step sizes, shape (tokens, heads).
        A: decay rates, negative, shape (heads,).
        B: input weights, shape (tokens, groups, state size).
        C: output weights, like `B`.
        chunk_size: the model's own chunk in tokens, an upper bound of what is scanned at once.
        out: outputs, shape of `x`, written in place.
        cu_chunk_seqlens: where each chunk starts, and the end, shape (chunks + 1,).
        last_chunk_indices: the last chunk of each sequence, shape (sequences,).
        D: skip weights, shape (heads,), or None.
        z: gates, shape of `x`, or None.
        dt_bias: added to the step sizes, shape (heads,), or None.
        initial_states: shape (sequences, heads, head size, state size), or None for zeros.
        dt_softplus: whether the step sizes go through softplus.
        dt_limit: bounds of the step sizes after that.
        return_intermediate_states: whether the state after every chunk is asked for; if not,
            vLLM's own kernel does the work.
        state_dtype: of the states returned; None is that of `x`.
        options: what vLLM's own kernel takes beside these.

    Returns:
        States after every chunk, shape (chunks, heads, head size, state size).
    """
    if not return_intermediate_states:
        original = vllm_names.original_kernel("mamba_chunk_scan_combined_varlen")
        result: Tensor = original(
            x,
            dt,
            A,
            B,
            C,
            chunk_size,
            out=out,
            cu_chunk_seqlens=cu_chunk_seqlens,
            last_chunk_indices=last_chunk_indices,
            D=D,
            z=z,
            dt_bias=dt_bias,
            initial_states=initial_states,
            dt_softplus=dt_softplus,
            dt_limit=dt_limit,
            state_dtype=state_dtype,
            **options,
        )
        return result
    steps = _steps(dt, dt_bias, dt_softplus, dt_limit)
    inputs, B, C = x.contiguous(), B.contiguous(), C.contiguous()
    skip = None if D is None else D.float().contiguous()
    bounds = cu_chunk_seqlens.tolist()
    scan = vllm_names.scan_operator()
    states = x.new_zeros((len(bounds) - 1, *x.shape[1:], B.shape[-1]), dtype=torch.float32)
    first = 0
    for sequence, last in enumerate(last_chunk_indices.tolist()):
        before = None if initial_states is None else initial_states[sequence]
        for chunk in range(first, last + 1):
            if before is not None:
                states[chunk] = before
            piece = slice(bounds[chunk], bounds[chunk + 1])
            scan(
                out[piece],
                states[chunk : chunk + 1],  # the state before, changed to the state after
                inputs[piece],
                steps[piece],
                A,
                B[piece],
                C[piece],
                skip,
                None if z is None else z[piece].contiguous(),
                torch.tensor([0, piece.stop - piece.start], dtype=torch.int32),
            )
            before = states[chunk]
        first = last + 1
    return states.to(state_dtype or x.dtype)


def _steps(dt: Tensor, bias: Tensor | None, positive: bool, limit: tuple[float, float]) -> Tensor:
    steps = dt.float()
    if bias is not None:
        steps = steps + bias.float()
    if positive:
        steps = softplus(steps)
    if limit != (0.0, float("inf")):
        steps = steps.clamp(*limit)
    return steps.contiguous()
