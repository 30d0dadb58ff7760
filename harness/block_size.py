"""How many tokens a block holds, derived from a model's configuration as vLLM derives it.

In cache mode `all` vLLM makes the attention block so large that its page holds a recurrent state,
in multiples of the model's own scan chunk (`Platform._align_hybrid_block_size` and what preceded
it). The offloaded chunk is that block times `blocks_per_chunk`.
"""

from collections.abc import Mapping
from math import ceil, lcm, prod

from harness.errors import FixcostError

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CUDA_ALIGNMENT, CPU_ALIGNMENT = 16, 128
"""Tokens: the larger of the default block and the smallest that the attention kernels take."""


def tokens_per_block(
    configuration: Mapping[str, object], dtype: str, state_dtype: str, alignment: int
) -> int:
    """Tokens of a block of a NemotronH model, the same for attention and Mamba layers.

    Args:
        configuration: its `config.json`.
        dtype: of the attention cache.
        state_dtype: of the recurrent states, convolution and scan.
        alignment: `CUDA_ALIGNMENT` or `CPU_ALIGNMENT`.

    Raises:
        FixcostError: the configuration is not that of a NemotronH model.
    """

    def size(name: str) -> int:
        value = configuration.get(name)
        if not isinstance(value, int):
            raise FixcostError(f"This configuration has no {name}: it is no NemotronH model.")
        return value

    token_bytes = 2 * size("num_key_value_heads") * size("head_dim") * BYTES[dtype]
    inner = size("mamba_num_heads") * size("mamba_head_dim")
    convolved = inner + 2 * size("n_groups") * size("ssm_state_size")
    scan_state = (size("mamba_num_heads"), size("mamba_head_dim"), size("ssm_state_size"))
    state_bytes = BYTES[state_dtype] * (convolved * (size("conv_kernel") - 1) + prod(scan_state))
    step = lcm(size("chunk_size"), alignment)
    return step * ceil(ceil(state_bytes / token_bytes) / step)
