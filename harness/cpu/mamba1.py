"""The Mamba-1 recurrence for cache mode `all`, where vLLM's CPU build has none.

Every channel has a state of its own (arXiv 2312.00752, algorithm 2): h' = exp(dt A) h + dt B x and
y = C h' + D x. In this mode a sequence owns a row of state blocks: it goes on from one of them and
leaves a state at every block boundary that it crosses and at its end.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus


def selective_scan_fn(
    u: Tensor,
    ssm_states: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    *,
    query_start_loc: Tensor,
    cache_indices: Tensor,
    has_initial_state: Tensor,
    block_idx_first_scheduled_token: Tensor | None = None,
    initial_state_idx: Tensor | None = None,
    cu_chunk_seqlen: Tensor | None = None,
    last_chunk_indices: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Scan several sequences.

    Args:
        u: inputs, shape (channels, tokens), the sequences one after the other.
        ssm_states: shape (blocks, channels, state size), changed in place.
        delta: step sizes, like `u`.
        A: decay rates, negative, shape (channels, state size).
        B: input weights, shape (state size, tokens).
        C: output weights, like `B`.
        D: skip weights, shape (channels,), or None.
        z: gates, like `u`, or None.
        delta_bias: added to the step sizes, shape (channels,), or None.
        delta_softplus: whether the step sizes go through softplus.
        query_start_loc: where each sequence starts, and the end, shape (sequences + 1,).
        cache_indices: the block row of each sequence, shape (sequences, blocks a sequence); in
            other modes its one block, shape (sequences,).
        has_initial_state: whether it goes on from a state, shape (sequences,).
        block_idx_first_scheduled_token: index into its row of the block in which each sequence
            starts, shape (sequences,).
        initial_state_idx: of the block that holds the state it goes on from.
        cu_chunk_seqlen: where each piece of at most a block starts, and the end, (pieces + 1,).
        last_chunk_indices: the last piece of each sequence, shape (sequences,).

    Returns:
        Outputs, like `u`.
    """
    steps = _steps(delta, delta_bias, delta_softplus).T
    inputs = u.T.float()
    keep = torch.exp(steps[..., None] * A.float())
    add = (steps * inputs)[..., None] * B.T.float()[:, None, :]
    states = torch.empty_like(keep)  # after every token
    first_piece = 0
    for row, (begin, end) in enumerate(pairwise(query_start_loc.tolist())):
        if (
            cache_indices.dim() == 2
            and block_idx_first_scheduled_token is not None
            and initial_state_idx is not None
            and cu_chunk_seqlen is not None
            and last_chunk_indices is not None
        ):
            last_piece = int(last_chunk_indices[row])
            ends = cu_chunk_seqlen[first_piece + 1 : last_piece + 2].tolist()
            first_piece = last_piece + 1
            first = int(block_idx_first_scheduled_token[row])
            source = cache_indices[row, initial_state_idx[row]]
            targets = cache_indices[row, first : first + len(ends)].long()
        else:
            ends, source = [end], cache_indices.flatten()[row]
            targets = source[None].long()
        if begin == end:
            continue
        state = ssm_states[source].float() if has_initial_state[row] else add.new_zeros(A.shape)
        for token in range(begin, end):
            state = torch.addcmul(add[token], keep[token], state, out=states[token])
        ssm_states[targets] = states[[position - 1 for position in ends]].to(ssm_states.dtype)
    out = (states * C.T.float()[:, None, :]).sum(-1)
    return _finish(out, inputs, D, None if z is None else z.T).T.to(u.dtype)


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    z: Tensor | None = None,
    dt_softplus: bool = False,
    *,
    state_batch_indices: Tensor,
    dst_state_batch_indices: Tensor | None = None,
    out: Tensor,
    **_: Any,
) -> None:
    """Scan one more token of each sequence, from the state of one block into another.

    Args:
        state: shape (blocks, channels, state size), changed in place.
        x: one input a sequence, shape (sequences, channels).
        dt: step sizes, like `x`.
        A: decay rates, negative, shape (channels, state size).
        B: input weights, shape (sequences, state size).
        C: output weights, like `B`.
        D: skip weights, shape (channels,), or None.
        dt_bias: added to the step sizes, shape (channels,), or None.
        z: gates, like `x`, or None.
        dt_softplus: whether the step sizes go through softplus.
        state_batch_indices: the block that each sequence reads, shape (sequences,).
        dst_state_batch_indices: the block that it writes, or None for the same one.
        out: outputs, like `x`, written in place.
    """
    source = state_batch_indices.flatten().long()
    target = source if dst_state_batch_indices is None else dst_state_batch_indices.flatten().long()
    steps = _steps(dt.T, dt_bias, dt_softplus).T
    after = torch.addcmul(
        (steps * x.float())[..., None] * B.float()[:, None, :],
        torch.exp(steps[..., None] * A.float()),
        state[source].float(),
    )
    state[target] = after.to(state.dtype)
    out.copy_(_finish((after * C.float()[:, None, :]).sum(-1), x.float(), D, z))


def _steps(delta: Tensor, bias: Tensor | None, positive: bool) -> Tensor:
    """Step sizes, shape (channels, tokens)."""
    steps = delta.float() if bias is None else delta.float() + bias.float()[:, None]
    return softplus(steps) if positive else steps


def _finish(out: Tensor, inputs: Tensor, skip: Tensor | None, gate: Tensor | None) -> Tensor:
    """Add the skip and apply the gate; all of shape (tokens, channels)."""
    if skip is not None:
        out = out + skip.float() * inputs
    return out if gate is None else out * silu(gate.float())
