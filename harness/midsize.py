"""A hybrid model of 1.2 billion weights, made from a seed as fast as a disk takes it.

Weights are bfloat16 and made of random bits: sign and mantissa are drawn, the exponent is the one
that brings their root mean square nearest to 1/sqrt(fan-in), as in the tiny models. So the state
moves the output (vLLM's own `load_format="dummy"` has weights near zero, whose output depends on
nothing), and no time goes into normal deviates.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness import progress

NAME = "nemotron-h-1b"
HIDDEN, VOCABULARY, MLP = 2048, 32_768, 8192
HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
MAMBA_HEADS, MAMBA_HEAD_DIM, STATE_SIZE, GROUPS, CONV_WIDTH = 64, 64, 128, 8, 4
INNER = MAMBA_HEADS * MAMBA_HEAD_DIM
CONVOLVED = INNER + 2 * GROUPS * STATE_SIZE
LAYERS = "M-M-M-M*-" * 4
CONFIGURATION: dict[str, object] = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "dtype": "bfloat16",
    "hidden_size": HIDDEN,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "max_position_embeddings": 131_072,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": len(LAYERS),
    "hybrid_override_pattern": LAYERS,
    "intermediate_size": MLP,
    "mamba_num_heads": MAMBA_HEADS,
    "mamba_head_dim": MAMBA_HEAD_DIM,
    "ssm_state_size": STATE_SIZE,
    "n_groups": GROUPS,
    "conv_kernel": CONV_WIDTH,
    "chunk_size": 128,
    "use_conv_bias": True,
    "mlp_hidden_act": "relu2",
    "mamba_hidden_act": "silu",
}
_SEED = 51094
_SIGN_AND_MANTISSA = 0x807F
_RMS_OF_MANTISSA = math.sqrt(7 / 3)
"""Of a number drawn evenly from 1 to 2."""
Shape = tuple[int, ...]


def write(folder: Path) -> None:
    """Write configuration and weights into `folder`, which exists, a file for each layer."""
    import torch  # NumPy has no bfloat16; the engine that reads this needs torch anyway
    from safetensors.torch import save_file

    (folder / "config.json").write_text(json.dumps(CONFIGURATION, indent=2, sort_keys=True) + "\n")
    places: dict[str, str] = {}
    parts = list(_parts())
    with progress.track(len(parts), f"Making {NAME}") as step:
        for index, shapes in enumerate(parts):
            name = f"model-{index:02}.safetensors"
            bits = np.random.SFC64([_SEED, index])
            tensors = {
                tensor: torch.from_numpy(_weights(tensor, shape, bits).view(np.int16))
                .view(torch.bfloat16)
                .reshape(shape)
                for tensor, shape in shapes.items()
            }
            save_file(tensors, folder / name, {"format": "pt"})
            places |= dict.fromkeys(shapes, name)
            step(name)
    index_file = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index_file, sort_keys=True))


def parameters() -> int:
    """How many weights it has."""
    return sum(math.prod(shape) for shapes in _parts() for shape in shapes.values())


def _parts() -> Iterator[dict[str, Shape]]:
    """The shapes of the tensors of each file."""
    yield {"backbone.embeddings.weight": (VOCABULARY, HIDDEN)}
    mixers: dict[str, dict[str, Shape]] = {
        "M": {
            "in_proj.weight": (INNER + CONVOLVED + MAMBA_HEADS, HIDDEN),
            "conv1d.weight": (CONVOLVED, 1, CONV_WIDTH),
            "conv1d.bias": (CONVOLVED,),
            "A_log": (MAMBA_HEADS,),
            "dt_bias": (MAMBA_HEADS,),
            "D": (MAMBA_HEADS,),
            "norm.weight": (INNER,),
            "out_proj.weight": (HIDDEN, INNER),
        },
        "-": {"up_proj.weight": (MLP, HIDDEN), "down_proj.weight": (HIDDEN, MLP)},
        "*": {
            "q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            "k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        },
    }
    for index, kind in enumerate(LAYERS):
        layer = f"backbone.layers.{index}"
        shapes = {f"{layer}.mixer.{name}": shape for name, shape in mixers[kind].items()}
        yield {**shapes, f"{layer}.norm.weight": (HIDDEN,)}
    yield {"backbone.norm_f.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}


def _weights(name: str, shape: Shape, bits: np.random.SFC64) -> NDArray[np.uint16]:
    """One tensor, as the bits of bfloat16."""
    kind = name.rpartition(".mixer.")[2]
    if kind == "A_log":
        return _bfloat16(np.log(np.linspace(1, 16, shape[0])))
    if kind == "dt_bias":
        steps = np.geomspace(1e-3, 1e-1, shape[0])
        return _bfloat16(steps + np.log(-np.expm1(-steps)))
    if kind == "conv1d.bias":
        return _bfloat16(np.zeros(shape))
    if len(shape) == 1:  # norms and D
        return _bfloat16(np.ones(shape))
    fan_in = shape[-1] * (16 if name.startswith("lm_head") else 1)
    exponent = 127 + round(math.log2(1 / (math.sqrt(fan_in) * _RMS_OF_MANTISSA)))
    count = math.prod(shape)
    drawn = bits.random_raw(-(-count // 4)).view(np.uint16)[:count]
    drawn &= np.uint16(_SIGN_AND_MANTISSA)
    drawn |= np.uint16(exponent << 7)
    return np.asarray(drawn, np.uint16)


def _bfloat16(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Rounded down, as bits."""
    return np.asarray(values.astype(np.float32).view(np.uint32) >> 16, np.uint16)
