"""Lay one commit's Python over the installed vLLM wheel: a folder of links, made in moments.

What the commit leaves alone is a link to the wheel, whole folders at a time; what it changes is
a real file. Compiled code always comes from the wheel, so a commit that needs other compiled
code cannot be laid over it.
"""

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from harness import git
from harness.errors import FixcostError

PACKAGE = "vllm"
COMPILED = ("csrc", "cmake", "CMakeLists.txt", "setup.py")


def make(repository: Path, commit: str, wheel_ref: str, site_packages: Path, folder: Path) -> None:
    """Make `folder`, which put before `site_packages` on the path turns the wheel into `commit`.

    Args:
        wheel_ref: the commit or tag of `repository` that the wheel was built from.
        folder: must not exist; it appears at the end, complete or not at all.

    Raises:
        FixcostError: git does not know `commit` or `wheel_ref`, or between the two something
            changes that goes into the compiled code.
    """
    changes = _changes(repository, wheel_ref, commit)
    compiled = sorted(name for name in changes if not name.startswith(f"{PACKAGE}/"))
    if compiled:
        others = f" and {len(compiled) - 1} more" if len(compiled) > 1 else ""
        raise FixcostError(
            f"Commit {commit[:8]} needs other compiled code than the installed wheel: "
            f"{compiled[0]}{others} changed since {wheel_ref}."
        )
    kept = [name for name, status in changes.items() if status != "D"]
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _link(site_packages, partial, PACKAGE, changes)
    for name, content in _contents(repository, commit, kept).items():
        file = partial / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    partial.rename(folder)


def keep_newest(parent: Path, count: int) -> None:
    """Delete all but the `count` folders in `parent` that were modified last."""
    by_age = sorted(parent.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in by_age[count:]:
        shutil.rmtree(folder)


def _changes(repository: Path, old: str, new: str) -> dict[str, str]:
    """What differs between two commits, of all that makes a wheel: path to A, D, M or T."""
    arguments = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new, "--")
    fields = git.output(repository, *arguments, PACKAGE, *COMPILED).decode().split("\0")[:-1]
    return dict(zip(fields[1::2], fields[0::2], strict=True))


def _link(wheel: Path, overlay: Path, name: str, changes: Collection[str]) -> None:
    """Link what lies in folder `name` of the wheel into the overlay, but for `changes`."""
    (overlay / name).mkdir()
    for entry in os.scandir(wheel / name):
        path = f"{name}/{entry.name}"
        if entry.name == "__pycache__":
            _link_compiled(Path(entry.path), overlay / path, name, changes)
        elif entry.is_dir() and any(change.startswith(f"{path}/") for change in changes):
            _link(wheel, overlay, path, changes)
        elif path not in changes:
            (overlay / path).symlink_to(entry.path)


def _link_compiled(cache: Path, overlay: Path, name: str, changes: Collection[str]) -> None:
    """Link the byte code of unchanged files; a link to the whole cache would let Python write
    the commit's byte code into the wheel."""
    overlay.mkdir()
    for entry in cache.iterdir():
        if f"{name}/{entry.name.partition('.')[0]}.py" not in changes:
            (overlay / entry.name).symlink_to(entry)


def _contents(repository: Path, commit: str, names: list[str]) -> dict[str, bytes]:
    """The files `names` as `commit` has them, byte for byte (no filters, no line endings)."""
    asked = "".join(f"{commit}:{name}\n" for name in names).encode()
    answer = git.output(repository, "cat-file", "--batch", stdin=asked)
    contents, position = {}, 0
    for name in names:
        start = answer.index(b"\n", position) + 1
        size = int(answer[position:start].split()[-1])
        contents[name] = answer[start : start + size]
        position = start + size + 1
    return contents
