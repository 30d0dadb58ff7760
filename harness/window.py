"""How much of a prompt the connector restores from host memory, as vLLM's own rules have it.

In cache mode `all`, when every whole chunk of the prompt is stored. The last token is always
computed again, so at most `prompt_length - 1` tokens are a hit (vLLM PR 51100).
"""

from collections.abc import Iterable

from harness.record import Group
from harness.vocabulary import Alignment


def is_exact_boundary(prompt_length: int, chunk: int) -> bool:
    """Whether the alignment changes anything: a prompt of whole chunks, at least two."""
    return prompt_length % chunk == 0 and prompt_length >= 2 * chunk


def cached_tokens(prompt_length: int, chunk: int, alignment: Alignment) -> int:
    """Tokens of the hit under `ALIGNED` or `UNALIGNED`."""
    if alignment is Alignment.UNALIGNED and is_exact_boundary(prompt_length, chunk):
        return prompt_length - 1
    return (prompt_length - 1) // chunk * chunk


def reload_bytes(groups: Iterable[Group], chunk: int, cached: int) -> int:
    """Bytes that a hit moves: every chunk of attention, and the last state of a Mamba layer."""
    if cached == 0:
        return 0
    moved = 0
    for group in groups:
        pages = 1 if group.recurrent else -(-cached // chunk) * chunk / group.tokens_per_block
        moved += round(pages * group.layers * group.page_bytes)
    return moved
