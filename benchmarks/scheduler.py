"""The scheduler's own part, without an engine: does the hot path grow with the prompt?"""

import os

from harness import vllm_names

TOKENS_PER_BLOCK = 16


class Alignment:
    """What PR 51100 changed: once per engine start, over all cache groups."""

    version = "1"

    def setup(self) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        self.arguments = vllm_names.offloading_spec(TOKENS_PER_BLOCK)
        self.resolve = vllm_names.resolve_mamba_align_size()

    def time_resolve_mamba_align_size(self) -> None:
        """Find the alignment of a model with one attention and one Mamba group."""
        self.resolve(*self.arguments)


class Lookup:
    """What every request pays before its first token, by the chunks that host memory holds."""

    params = (1, 10, 100, 1000)
    param_names = ("chunks",)
    version = "1"

    def setup(self, chunks: int) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        self.connector, self.prompt = vllm_names.connector_with_stored_prompt(
            TOKENS_PER_BLOCK, chunks
        )
        found, _ = self.connector.get_num_new_matched_tokens(self.prompt, 0)
        if found != chunks * TOKENS_PER_BLOCK:
            raise RuntimeError(f"The lookup found {found} tokens of {chunks} stored chunks.")

    def time_lookup(self, _: int) -> None:
        """Find how much of a prompt can be restored when all of it is in host memory."""
        self.connector.get_num_new_matched_tokens(self.prompt, 0)
