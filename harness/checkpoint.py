"""The embedded models as checkpoints on disk, made on first use.

Nothing is downloaded. The weights are the same on every platform, so one digest identifies each
checkpoint wherever it was made.
"""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import platformdirs
from safetensors import SafetensorError

from harness import midsize
from harness.architectures import ARCHITECTURES, Architecture, Drawn
from harness.errors import FixcostError

DIGESTS = {
    "nemotron-h": "5d4b2b82c9eb9ff6f5493f6f3c6b2cab3c7de3e8cf29ce1f55d14b802ade5520",
    "granite-moe-hybrid": "e5982898c1b35ef5eb1a10f427074d01f63fa7e82bec4ae640bd39e4c6445082",
    "falcon-h1": "3e2c6ff3357b4205c63c9f5ec6f10668da4f5696e09bbe92ac7844ea8bacc9ca",
    "mamba2": "26d7a2aac3375e7af24a862be27d154378f9f24f7422f7576290dc6d78c25763",
    "mamba1": "97f9ddb4463b5b4dd3653b7537fd842d9326091e16b5bbc14dce4276088c5c67",
    midsize.NAME: "5dff7b3dbb840414dbd7e69485dc76905eff4685752a1f0138f0f4e841e930d6",
}
"""SHA-256 over the files of each embedded checkpoint (`digest`)."""


def embedded(architecture: str) -> Path:
    """The folder of an embedded checkpoint, made on first use and checked by digest.

    Args:
        architecture: a name of `ARCHITECTURES`, or `midsize.NAME`.

    Raises:
        FixcostError: the cache folder cannot be written, or what it holds cannot be mended.
    """
    expected = DIGESTS[architecture]
    name = architecture if architecture == midsize.NAME else f"{architecture}-tiny"
    folder = Path(platformdirs.user_cache_dir("fixcost")) / f"{name}-{expected[:12]}"
    if folder.is_dir() and digest(folder) == expected:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
        try:
            if architecture == midsize.NAME:
                midsize.write(made)
            else:
                write(made, ARCHITECTURES[architecture])
            made.chmod(0o755)  # mkdtemp made it private, a cache is not
            found = digest(made)
            if found != expected:
                raise FixcostError(
                    f"The embedded checkpoint came out as {found[:12]} instead of {expected[:12]}: "
                    f"NumPy {np.__version__} draws other numbers from the same seed."
                )
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except SafetensorError as error:
        raise FixcostError(f"Cannot write the checkpoint in {folder.parent}: {error}.") from error
    except OSError as error:
        if folder.is_dir() and digest(folder) == expected:
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


def write(folder: Path, architecture: Architecture) -> None:
    """Write configuration and weights into `folder`, which exists."""
    from safetensors.numpy import save_file

    configuration = json.dumps(architecture.configuration, indent=2, sort_keys=True)
    (folder / "config.json").write_text(configuration + "\n")
    tensors = architecture.weights(Drawn(architecture.deviation))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
