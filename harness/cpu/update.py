"""One more token through the Mamba-2 recurrence, from the state of one block into another's.

vLLM's CPU operator leaves the new state in the block that it read as well. In cache mode `all`
that block is a cached prefix, which the next request would then restore one token too far.
"""

from typing import Any

from torch import Tensor

from harness import vllm_names


def selective_state_update(
    state: Tensor,
    *arguments: Any,
    state_batch_indices: Tensor | None = None,
    dst_state_batch_indices: Tensor | None = None,
    **options: Any,
) -> None:
    """Move each state to the block that is to be written, and let vLLM's kernel work there.

    Args:
        state: shape (blocks, heads, head size, state size), changed in place.
        arguments: what vLLM's own kernel takes.
        state_batch_indices: the block that each sequence reads, shape (sequences,).
        dst_state_batch_indices: the block that it writes, shape (sequences,), or None for the
            same one.
        options: what vLLM's own kernel takes.
    """
    if state_batch_indices is not None and dst_state_batch_indices is not None:
        state[dst_state_batch_indices.long()] = state[state_batch_indices.long()]
        state_batch_indices = dst_state_batch_indices
    vllm_names.original_kernel("selective_state_update")(
        state,
        *arguments,
        state_batch_indices=state_batch_indices,
        dst_state_batch_indices=dst_state_batch_indices,
        **options,
    )
