"""Keep float32 convolution weights as they are where vLLM's CPU loader would pack them.

On processors with AMX (0.28) or bf16 (0.29 on) the loader packs every convolution weight into a
layout that only its bf16 kernel reads; a float32 model then fails with "not implemented for
'Float'".
"""

from functools import wraps
from typing import Any

from harness import vllm_names


def guard() -> None:
    """Let the loader pass over float32 convolution weights; a second call changes nothing."""
    import torch

    utilities, name = vllm_names.weight_dispatch()
    dispatch = getattr(utilities, name)
    if hasattr(dispatch, "__wrapped__"):
        return

    @wraps(dispatch)
    def guarded(layer: Any, *arguments: Any, **options: Any) -> None:
        is_convolution = layer.weight.ndim == 3 and layer.weight.shape[1] == 1
        if not (is_convolution and layer.weight.dtype == torch.float32):
            dispatch(layer, *arguments, **options)

    setattr(utilities, name, guarded)
