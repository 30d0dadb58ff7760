"""Tiny models of several architectures, their weights drawn from a seed.

The weights come from NumPy's PCG64 generator, whose stream is the same on every platform. Dense
weights are scaled by 1/sqrt(fan-in), so that the state moves the logits by more than rounding does.
Decay and step size start as in the papers (Mamba, arXiv 2312.00752; Mamba-2, arXiv 2405.21060): A
from 1 to the number of heads or states, softplus(dt_bias) log-uniform between 0.001 and 0.1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEED = 51094
HIDDEN = 128
VOCABULARY = 512
CONTEXT = 8192
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
MAMBA_HEADS, MAMBA_HEAD_DIM, STATE_SIZE, CONV_WIDTH = 8, 32, 32, 4
INNER = MAMBA_HEADS * MAMBA_HEAD_DIM
MODEL_CHUNK = 16

Tensors = dict[str, NDArray[np.float32]]
Configuration = dict[str, object]


class Drawn:
    """A stream of random weights."""

    def __init__(self, deviation: float | None = None) -> None:
        """Draw dense weights of this deviation, by default of 1/sqrt(fan-in)."""
        self._generator = np.random.default_rng(SEED)
        self._deviation = deviation

    def dense(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Shape (rows, columns)."""
        drawn = self._generator.standard_normal((rows, columns), dtype=np.float32)
        divisor = 1 / self._deviation if self._deviation else np.sqrt(columns)
        return np.asarray(drawn / np.float32(divisor), np.float32)

    def step_bias(self, count: int) -> NDArray[np.float32]:
        """Whose softplus is log-uniform between 0.001 and 0.1, shape (count,)."""
        steps = np.exp(self._generator.uniform(np.log(1e-3), np.log(1e-1), count))
        return np.asarray(steps + np.log(-np.expm1(-steps)), np.float32)


@dataclass(frozen=True)
class Architecture:
    """A model that can be made from the seed."""

    name: str
    configuration: Configuration
    """As Hugging Face's `config.json` has it."""
    weights: Callable[[Drawn], Tensors]
    deviation: float | None = None
    """Of the dense weights; None for 1/sqrt(fan-in)."""


def ones(size: int) -> NDArray[np.float32]:
    """Shape (size,)."""
    return np.ones(size, np.float32)


def mamba2(drawn: Drawn, groups: int, gated_norm: bool = True) -> Tensors:
    """A Mamba-2 mixer; gate and inputs, convolution inputs and step sizes in one projection."""
    convolved = INNER + 2 * groups * STATE_SIZE
    bias = drawn.step_bias(MAMBA_HEADS)
    tensors = {
        "in_proj.weight": drawn.dense(INNER + convolved + MAMBA_HEADS, HIDDEN),
        "conv1d.weight": drawn.dense(convolved, CONV_WIDTH)[:, None, :],
        "conv1d.bias": np.zeros(convolved, np.float32),
        "A_log": np.log(np.arange(1, MAMBA_HEADS + 1)).astype(np.float32),
        "dt_bias": bias,
        "D": ones(MAMBA_HEADS),
        "norm.weight": ones(INNER),
        "out_proj.weight": drawn.dense(HIDDEN, INNER),
    }
    if not gated_norm:
        del tensors["norm.weight"]
    return tensors


def attention(drawn: Drawn) -> Tensors:
    """Grouped-query attention."""
    return {
        "q_proj.weight": drawn.dense(HEADS * HEAD_DIM, HIDDEN),
        "k_proj.weight": drawn.dense(KV_HEADS * HEAD_DIM, HIDDEN),
        "v_proj.weight": drawn.dense(KV_HEADS * HEAD_DIM, HIDDEN),
        "o_proj.weight": drawn.dense(HIDDEN, HEADS * HEAD_DIM),
    }


def below(prefix: str, tensors: Tensors) -> Tensors:
    """The same tensors, their names under a prefix."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


_COMMON: Configuration = {
    "dtype": "float32",
    "hidden_size": HIDDEN,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_ATTENTION: Configuration = {
    "max_position_embeddings": CONTEXT,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
}


# NemotronH: one mixer a layer, M Mamba-2, - MLP, * attention, as its own configuration has it.

NEMOTRON_LAYERS = "M-M*-M-M*"
NEMOTRON_MLP = 1024
NEMOTRON_GROUPS = 2


def nemotron_h(layers: str = NEMOTRON_LAYERS) -> Architecture:
    """The embedded default, or one of other layers."""

    def mlp(drawn: Drawn) -> Tensors:
        return {
            "up_proj.weight": drawn.dense(NEMOTRON_MLP, HIDDEN),
            "down_proj.weight": drawn.dense(HIDDEN, NEMOTRON_MLP),
        }

    def weights(drawn: Drawn) -> Tensors:
        mixers: dict[str, Callable[[Drawn], Tensors]] = {
            "M": lambda stream: mamba2(stream, NEMOTRON_GROUPS),
            "-": mlp,
            "*": attention,
        }
        tensors = {"backbone.embeddings.weight": drawn.dense(VOCABULARY, HIDDEN)}
        for index, kind in enumerate(layers):
            layer = f"backbone.layers.{index}"
            tensors |= below(f"{layer}.mixer", mixers[kind](drawn))
            tensors[f"{layer}.norm.weight"] = ones(HIDDEN)
        tensors["backbone.norm_f.weight"] = ones(HIDDEN)
        tensors["lm_head.weight"] = drawn.dense(VOCABULARY, HIDDEN) / np.float32(4)
        return tensors

    return Architecture(
        name="nemotron-h",
        configuration=_COMMON
        | _ATTENTION
        | {
            "architectures": ["NemotronHForCausalLM"],
            "model_type": "nemotron_h",
            "hybrid_override_pattern": layers,
            "num_hidden_layers": len(layers),
            "intermediate_size": NEMOTRON_MLP,
            "head_dim": HEAD_DIM,
            "mamba_num_heads": MAMBA_HEADS,
            "mamba_head_dim": MAMBA_HEAD_DIM,
            "ssm_state_size": STATE_SIZE,
            "n_groups": NEMOTRON_GROUPS,
            "conv_kernel": CONV_WIDTH,
            "chunk_size": MODEL_CHUNK,
            "mamba_hidden_act": "silu",
            "mlp_hidden_act": "relu2",
            "use_conv_bias": True,
        },
        weights=weights,
    )


# GraniteMoeHybrid: a mixer and a shared MLP in every layer, here without experts.

GRANITE_LAYERS = ("mamba", "attention", "mamba")
GRANITE_MLP = 512


def _granite_weights(drawn: Drawn) -> Tensors:
    tensors = {"model.embed_tokens.weight": drawn.dense(VOCABULARY, HIDDEN)}
    for index, kind in enumerate(GRANITE_LAYERS):
        layer = f"model.layers.{index}"
        if kind == "mamba":
            tensors |= below(f"{layer}.mamba", mamba2(drawn, groups=1))
        else:
            tensors |= below(f"{layer}.self_attn", attention(drawn))
        tensors[f"{layer}.shared_mlp.input_linear.weight"] = drawn.dense(2 * GRANITE_MLP, HIDDEN)
        tensors[f"{layer}.shared_mlp.output_linear.weight"] = drawn.dense(HIDDEN, GRANITE_MLP)
        tensors[f"{layer}.input_layernorm.weight"] = ones(HIDDEN)
        tensors[f"{layer}.post_attention_layernorm.weight"] = ones(HIDDEN)
    tensors["model.norm.weight"] = ones(HIDDEN)
    tensors["lm_head.weight"] = drawn.dense(VOCABULARY, HIDDEN)
    return tensors


GRANITE = Architecture(
    name="granite-moe-hybrid",
    configuration=_COMMON
    | _ATTENTION
    | {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "layer_types": list(GRANITE_LAYERS),
        "num_hidden_layers": len(GRANITE_LAYERS),
        "intermediate_size": GRANITE_MLP,
        "shared_intermediate_size": GRANITE_MLP,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "position_embedding_type": "rope",
        "mamba_n_heads": MAMBA_HEADS,
        "mamba_d_head": MAMBA_HEAD_DIM,
        "mamba_d_state": STATE_SIZE,
        "mamba_n_groups": 1,
        "mamba_d_conv": CONV_WIDTH,
        "mamba_expand": INNER // HIDDEN,
        "mamba_chunk_size": MODEL_CHUNK,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
    },
    weights=_granite_weights,
)


# Falcon-H1: attention and Mamba-2 side by side in every layer. Its weights have the deviation that
# Hugging Face starts them from: a wrong state moves the output so little that tokens hide the bug.

FALCON_LAYERS = 2
FALCON_MLP = 512
FALCON_DEVIATION = 0.02


def _falcon_weights(drawn: Drawn) -> Tensors:
    tensors = {"model.embed_tokens.weight": drawn.dense(VOCABULARY, HIDDEN)}
    for index in range(FALCON_LAYERS):
        layer = f"model.layers.{index}"
        tensors |= below(f"{layer}.mamba", mamba2(drawn, groups=1, gated_norm=False))
        tensors |= below(f"{layer}.self_attn", attention(drawn))
        for name, rows, columns in (
            ("gate_proj", FALCON_MLP, HIDDEN),
            ("up_proj", FALCON_MLP, HIDDEN),
            ("down_proj", HIDDEN, FALCON_MLP),
        ):
            tensors[f"{layer}.feed_forward.{name}.weight"] = drawn.dense(rows, columns)
        tensors[f"{layer}.input_layernorm.weight"] = ones(HIDDEN)
        tensors[f"{layer}.pre_ff_layernorm.weight"] = ones(HIDDEN)
    tensors["model.final_layernorm.weight"] = ones(HIDDEN)
    tensors["lm_head.weight"] = drawn.dense(VOCABULARY, HIDDEN)
    return tensors


FALCON_H1 = Architecture(
    name="falcon-h1",
    configuration=_COMMON
    | _ATTENTION
    | {
        "architectures": ["FalconH1ForCausalLM"],
        "model_type": "falcon_h1",
        "num_hidden_layers": FALCON_LAYERS,
        "intermediate_size": FALCON_MLP,
        "head_dim": HEAD_DIM,
        "mamba_d_ssm": INNER,
        "mamba_n_heads": MAMBA_HEADS,
        "mamba_d_head": MAMBA_HEAD_DIM,
        "mamba_d_state": STATE_SIZE,
        "mamba_n_groups": 1,
        "mamba_d_conv": CONV_WIDTH,
        "mamba_chunk_size": MODEL_CHUNK,
        "mamba_rms_norm": False,
    },
    weights=_falcon_weights,
    deviation=FALCON_DEVIATION,
)


# Mamba-2 and Mamba-1 alone, without any attention.

PURE_LAYERS = 3
MAMBA1_STATE, MAMBA1_RANK = 16, 8


def _pure_weights(drawn: Drawn, mixer: Callable[[Drawn], Tensors]) -> Tensors:
    tensors = {"backbone.embeddings.weight": drawn.dense(VOCABULARY, HIDDEN)}
    for index in range(PURE_LAYERS):
        tensors |= below(f"backbone.layers.{index}.mixer", mixer(drawn))
        tensors[f"backbone.layers.{index}.norm.weight"] = ones(HIDDEN)
    tensors["backbone.norm_f.weight"] = ones(HIDDEN)
    tensors["lm_head.weight"] = drawn.dense(VOCABULARY, HIDDEN)
    return tensors


def _mamba1(drawn: Drawn) -> Tensors:
    decay = np.log(np.arange(1, MAMBA1_STATE + 1)).astype(np.float32)
    return {
        "in_proj.weight": drawn.dense(2 * INNER, HIDDEN),
        "conv1d.weight": drawn.dense(INNER, CONV_WIDTH)[:, None, :],
        "conv1d.bias": np.zeros(INNER, np.float32),
        "x_proj.weight": drawn.dense(MAMBA1_RANK + 2 * MAMBA1_STATE, INNER),
        "dt_proj.weight": drawn.dense(INNER, MAMBA1_RANK),
        "dt_proj.bias": drawn.step_bias(INNER),
        "A_log": np.tile(decay, (INNER, 1)),
        "D": ones(INNER),
        "out_proj.weight": drawn.dense(HIDDEN, INNER),
    }


_PURE: Configuration = {
    "num_hidden_layers": PURE_LAYERS,
    "conv_kernel": CONV_WIDTH,
    "expand": INNER // HIDDEN,
    "hidden_act": "silu",
    "use_bias": False,
    "use_conv_bias": True,
}
MAMBA2 = Architecture(
    name="mamba2",
    configuration=_COMMON
    | _PURE
    | {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "num_heads": MAMBA_HEADS,
        "head_dim": MAMBA_HEAD_DIM,
        "state_size": STATE_SIZE,
        "n_groups": 1,
        "chunk_size": MODEL_CHUNK,
    },
    weights=lambda drawn: _pure_weights(drawn, lambda stream: mamba2(stream, groups=1)),
)
MAMBA1 = Architecture(
    name="mamba1",
    configuration=_COMMON
    | _PURE
    | {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "intermediate_size": INNER,
        "state_size": MAMBA1_STATE,
        "time_step_rank": MAMBA1_RANK,
    },
    weights=lambda drawn: _pure_weights(drawn, _mamba1),
)

ARCHITECTURES = {made.name: made for made in (nemotron_h(), GRANITE, FALCON_H1, MAMBA2, MAMBA1)}
