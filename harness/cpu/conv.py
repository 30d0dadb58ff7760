"""The causal convolution of Mamba for cache mode `all`, where vLLM's CPU build has none.

In that mode a sequence owns a row of state blocks: it reads its state from one of them and
leaves a state at every block boundary that it crosses and at its end. A convolution state is the
last `width - 1` inputs. Calls of any other mode go to vLLM's own kernels.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv1d, silu

from harness import vllm_names

PAD_SLOT = -1
"""vLLM's block index of a sequence that is not there."""


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    conv_states: Tensor,
    query_start_loc: Tensor,
    cache_indices: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    activation: str | bool | None = "silu",
    block_idx_first_scheduled_token: Tensor | None = None,
    block_idx_last_scheduled_token: Tensor | None = None,
    initial_state_idx: Tensor | None = None,
    num_computed_tokens: Tensor | None = None,
    block_size_to_align: int = 0,
    **options: Any,
) -> Tensor:
    """Convolve several sequences of a prefill, leaving a state at every block boundary.

    Args:
        x: inputs, shape (channels, tokens), the sequences one after the other.
        weight: shape (channels, width).
        bias: shape (channels,), or None.
        conv_states: shape (blocks, channels, at least width - 1), changed in place.
        query_start_loc: where each sequence starts in `x`, and the end, shape (sequences + 1,).
        cache_indices: the block row of each sequence, shape (sequences, blocks a sequence).
        has_initial_state: whether a sequence goes on from a state, shape (sequences,).
        activation: "silu" ("swish" is the same) or None.
        block_idx_first_scheduled_token: index into its row of the block in which each sequence
            starts, shape (sequences,); likewise the next two.
        block_idx_last_scheduled_token: of the block in which it ends.
        initial_state_idx: of the block that holds the state it goes on from.
        num_computed_tokens: tokens of each sequence before these, shape (sequences,).
        block_size_to_align: tokens per block.
        options: what vLLM's own kernel takes beside these.

    Returns:
        Outputs, shape (channels, tokens).
    """
    if (
        cache_indices is None
        or cache_indices.dim() == 1
        or block_idx_first_scheduled_token is None
        or block_idx_last_scheduled_token is None
        or initial_state_idx is None
        or num_computed_tokens is None
    ):
        original = vllm_names.original_kernel("causal_conv1d_fn")
        result: Tensor = original(
            x,
            weight,
            bias,
            conv_states=conv_states,
            query_start_loc=query_start_loc,
            cache_indices=cache_indices,
            has_initial_state=has_initial_state,
            activation=activation,
            **options,
        )
        return result
    kept = weight.shape[1] - 1
    out = torch.empty_like(x)
    starts = query_start_loc.tolist()
    firsts = block_idx_first_scheduled_token.tolist()
    lasts = block_idx_last_scheduled_token.tolist()
    computed = num_computed_tokens.tolist()
    sources = _pick(cache_indices, initial_state_idx).tolist()
    for row, (begin, end) in enumerate(pairwise(starts)):
        if begin == end or sources[row] == PAD_SLOT:
            continue
        goes_on = has_initial_state is not None and bool(has_initial_state[row])
        before = conv_states[sources[row], :, :kept]
        inputs = torch.cat([before if goes_on else torch.zeros_like(before), x[:, begin:end]], -1)
        convolved = conv1d(
            inputs.to(weight.dtype)[None], weight[:, None], bias, groups=weight.shape[0]
        )
        out[:, begin:end] = _activate(convolved[0], activation)

        # Tokens after which a state is left: at each boundary crossed, and at the end.
        first, last = firsts[row], lasts[row]
        boundaries = [(block + 1) * block_size_to_align for block in range(first, last)]
        consumed = [boundary - computed[row] for boundary in boundaries] + [end - begin]
        windows = inputs.unfold(-1, kept, 1)[:, consumed]
        conv_states[cache_indices[row, first : last + 1].long(), :, :kept] = windows.transpose(
            0, 1
        ).to(conv_states.dtype)
    return out


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | bool | None = None,
    conv_state_indices: Tensor | None = None,
    block_idx_last_scheduled_token: Tensor | None = None,
    initial_state_idx: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Convolve one more token of each sequence, from the state of one block into another.

    Args:
        x: one input a sequence, shape (sequences, channels).
        conv_state: shape (blocks, channels, at least width - 1), changed in place.
        weight: shape (channels, width).
        bias: shape (channels,), or None.
        activation: "silu" ("swish" is the same) or None.
        conv_state_indices: the block row of each sequence, shape (sequences, blocks a sequence).
        block_idx_last_scheduled_token: index into its row of the block to write, (sequences,).
        initial_state_idx: of the block to read, shape (sequences,).
        num_accepted_tokens: must be None in this mode (no speculative decoding).
        options: what vLLM's own kernel takes beside these.

    Returns:
        Outputs, shape (sequences, channels).

    Raises:
        NotImplementedError: speculative decoding in cache mode `all`.
    """
    if (
        conv_state_indices is None
        or conv_state_indices.dim() == 1
        or block_idx_last_scheduled_token is None
        or initial_state_idx is None
    ):
        original = vllm_names.original_kernel("causal_conv1d_update")
        result: Tensor = original(
            x,
            conv_state,
            weight,
            bias,
            activation,
            conv_state_indices=conv_state_indices,
            num_accepted_tokens=num_accepted_tokens,
            **options,
        )
        return result
    if num_accepted_tokens is not None:
        raise NotImplementedError("Speculative decoding is not supported in cache mode all.")
    kept = weight.shape[1] - 1
    source = _pick(conv_state_indices, initial_state_idx)
    target = _pick(conv_state_indices, block_idx_last_scheduled_token)
    inputs = torch.cat([conv_state[source, :, :kept].to(x.dtype), x[..., None]], dim=-1)
    conv_state[target, :, :kept] = inputs[..., 1:].to(conv_state.dtype)
    convolved = (inputs * weight).sum(-1)
    return _activate(convolved if bias is None else convolved + bias, activation)


def _pick(rows: Tensor, columns: Tensor) -> Tensor:
    """The element of each row at its column, shape (rows,)."""
    return rows.gather(1, columns.long()[:, None])[:, 0].long()


def _activate(values: Tensor, activation: str | bool | None) -> Tensor:
    if activation in (True, "silu", "swish"):
        return silu(values)
    if activation in (False, None):
        return values
    raise ValueError(f"Unknown activation {activation!r}.")
