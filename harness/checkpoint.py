"""The embedded model: a tiny hybrid NemotronH checkpoint whose weights are drawn from a seed.

Nothing is downloaded. The weights come from NumPy's PCG64 generator, whose stream is the same
on every platform, so one digest identifies the checkpoint wherever it was made.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

from harness.errors import FixcostError

SEED = 51094
DIGEST = "7be12e367581910490a2c182b30e252d22dc33089a268291a9ebc271f53c8204"
"""SHA-256 over the files of the embedded checkpoint (`digest`)."""

HIDDEN = 128
VOCABULARY = 512
LAYERS = "M-M*-M-M*"
"""`M` Mamba-2, `-` MLP, `*` attention, as in Nemotron-H's own configuration."""
MLP_WIDTH = 1024
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
MAMBA_HEADS, MAMBA_HEAD_DIM, STATE_SIZE, GROUPS, CONV_WIDTH = 8, 32, 32, 2, 4
MODEL_CHUNK = 16
CONTEXT = 8192

Tensors = dict[str, NDArray[np.float32]]
Dense = Callable[[int, int], NDArray[np.float32]]


def embedded() -> Path:
    """The folder of the embedded checkpoint, made on first use and checked by digest.

    Raises:
        FixcostError: the cache folder cannot be written, or what it holds cannot be mended.
    """
    folder = Path(platformdirs.user_cache_dir("fixcost")) / f"nemotron-h-tiny-{DIGEST[:12]}"
    if folder.is_dir() and digest(folder) == DIGEST:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
        try:
            write(made)
            found = digest(made)
            if found != DIGEST:
                raise FixcostError(
                    f"The embedded checkpoint came out as {found[:12]} instead of {DIGEST[:12]}: "
                    f"NumPy {np.__version__} draws other numbers from the same seed."
                )
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        if folder.is_dir() and digest(folder) == DIGEST:
            return folder  # another process was first
        raise FixcostError(
            f"Cannot make the embedded checkpoint in {folder.parent}: {error.strerror or error}."
        ) from error
    return folder


def digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a checkpoint's JSON and safetensors files."""
    sum_ = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.suffix in (".json", ".safetensors")):
        sum_.update(path.name.encode())
        with path.open("rb") as stream:
            while piece := stream.read(1 << 20):
                sum_.update(piece)
    return sum_.hexdigest()


def write(folder: Path) -> None:
    """Write configuration and weights into `folder`, which exists."""
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(configuration(), indent=2) + "\n")
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})
    folder.chmod(0o755)  # mkdtemp made it private, a cache is not


def configuration() -> dict[str, object]:
    """The Hugging Face configuration of the embedded model."""
    return {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "dtype": "float32",
        "hybrid_override_pattern": LAYERS,
        "num_hidden_layers": len(LAYERS),
        "hidden_size": HIDDEN,
        "intermediate_size": MLP_WIDTH,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "mamba_num_heads": MAMBA_HEADS,
        "mamba_head_dim": MAMBA_HEAD_DIM,
        "ssm_state_size": STATE_SIZE,
        "n_groups": GROUPS,
        "conv_kernel": CONV_WIDTH,
        "chunk_size": MODEL_CHUNK,
        "mamba_hidden_act": "silu",
        "mlp_hidden_act": "relu2",
        "use_conv_bias": True,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def weights() -> Tensors:
    """All tensors of the checkpoint, float32, drawn in a fixed order from `SEED`.

    Dense weights are scaled by 1/sqrt(fan-in), so that the state moves the logits by more than
    rounding does. Decay and step size start as in Mamba-2 (arXiv 2405.21060): A from 1 to the
    number of heads, softplus(dt_bias) log-uniform between 0.001 and 0.1.
    """
    generator = np.random.default_rng(SEED)

    def dense(rows: int, columns: int) -> NDArray[np.float32]:
        drawn = generator.standard_normal((rows, columns), dtype=np.float32)
        return np.asarray(drawn / np.sqrt(np.float32(columns)), np.float32)

    tensors: Tensors = {"backbone.embeddings.weight": dense(VOCABULARY, HIDDEN)}
    for index, kind in enumerate(LAYERS):
        layer = {"M": _mamba, "-": _mlp, "*": _attention}[kind](dense, generator)
        layer["norm.weight"] = np.ones(HIDDEN, np.float32)
        tensors |= {f"backbone.layers.{index}.{name}": tensor for name, tensor in layer.items()}
    tensors["backbone.norm_f.weight"] = np.ones(HIDDEN, np.float32)
    tensors["lm_head.weight"] = dense(VOCABULARY, HIDDEN) / np.float32(4)  # logits near 1
    return tensors


def _mamba(dense: Dense, generator: np.random.Generator) -> Tensors:
    inner = MAMBA_HEADS * MAMBA_HEAD_DIM
    convolved = inner + 2 * GROUPS * STATE_SIZE
    steps = np.exp(generator.uniform(np.log(1e-3), np.log(1e-1), MAMBA_HEADS))
    return {
        "mixer.in_proj.weight": dense(inner + convolved + MAMBA_HEADS, HIDDEN),
        "mixer.conv1d.weight": dense(convolved, CONV_WIDTH)[:, None, :],
        "mixer.conv1d.bias": np.zeros(convolved, np.float32),
        "mixer.A_log": np.log(np.arange(1, MAMBA_HEADS + 1)).astype(np.float32),
        "mixer.dt_bias": (steps + np.log(-np.expm1(-steps))).astype(np.float32),
        "mixer.D": np.ones(MAMBA_HEADS, np.float32),
        "mixer.norm.weight": np.ones(inner, np.float32),
        "mixer.out_proj.weight": dense(HIDDEN, inner),
    }


def _mlp(dense: Dense, _: np.random.Generator) -> Tensors:
    return {
        "mixer.up_proj.weight": dense(MLP_WIDTH, HIDDEN),
        "mixer.down_proj.weight": dense(HIDDEN, MLP_WIDTH),
    }


def _attention(dense: Dense, _: np.random.Generator) -> Tensors:
    return {
        "mixer.q_proj.weight": dense(HEADS * HEAD_DIM, HIDDEN),
        "mixer.k_proj.weight": dense(KV_HEADS * HEAD_DIM, HIDDEN),
        "mixer.v_proj.weight": dense(KV_HEADS * HEAD_DIM, HIDDEN),
        "mixer.o_proj.weight": dense(HIDDEN, HEADS * HEAD_DIM),
    }
