"""A recurrent state from the midst of a prefill, kept for cache mode `align` (from vLLM 0.32 on).

vLLM stores it with a Triton kernel, which the CPU build cannot run.
"""

from typing import Any

from torch import Tensor


def store_prefill_checkpoint(
    checkpoint: Any,
    chunk_idx: Tensor,
    x: Tensor,
    conv_state: Tensor,
    chunk_states: Tensor,
    ssm_state: Tensor,
    query_start_loc: Tensor,
    *,
    state_len: int,
) -> None:
    """Write the checkpoint of each sequence that has one into the block meant for it.

    Args:
        checkpoint: `checkpoint_offsets`, how many of the sequence's tokens the state has consumed
            (0: it has no checkpoint; else at least `state_len`), and `state_indices`, the block
            that takes it; both of shape (sequences,).
        chunk_idx: the row of `chunk_states` that is the checkpoint, shape (sequences,).
        x: inputs of the convolution, shape (channels, tokens), the sequences one after the other.
        conv_state: shape (blocks, channels, `state_len` or more), changed in place.
        chunk_states: shape (chunks, heads, head size, state size).
        ssm_state: shape (blocks, heads, head size, state size), changed in place.
        query_start_loc: where each sequence starts in `x`, and the end, shape (sequences + 1,).
        state_len: tokens that the convolution looks back.
    """
    for row, consumed in enumerate(checkpoint.checkpoint_offsets.tolist()):
        if consumed:
            block, end = int(checkpoint.state_indices[row]), int(query_start_loc[row]) + consumed
            conv_state[block, :, :state_len] = x[:, end - state_len : end]
            ssm_state[block] = chunk_states[int(chunk_idx[row])]
