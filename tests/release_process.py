"""A process of its own that imports another release than the installed one."""

import os
from pathlib import Path

from harness import releases

ROOT = Path(__file__).parents[1]


def environment(version: str) -> dict[str, str]:
    """The environment variables of such a process; the release is fetched if it is not here."""
    path = f"{releases.fetch(version).folder}:{ROOT}"
    return {**os.environ, "PYTHONPATH": path, "VLLM_LOGGING_LEVEL": "ERROR"}
