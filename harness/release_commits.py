"""Releases as commits, so that asv can measure and date them.

The sources stay in the unpacked wheels. A commit says which of them it stands for, in one small
file, so that its hash is the same on every machine, also where no wheel is at hand.
"""

from datetime import datetime
from pathlib import Path

import msgspec

from harness import git, release_table
from harness.errors import FixcostError
from harness.releases import Release

BRANCH = "releases"
BUILDS = "builds"
"""Of a user's own builds: one branch for each, below this name."""
_FILE = "RELEASE.json"


class _Content(msgspec.Struct):
    name: str
    sha256: str


def add_known(repository: Path, author: str) -> None:
    """Add the known releases that branch `releases` lacks: commit date = release date, tag = name.

    Raises:
        FixcostError: git failed, or the table of releases is damaged.
    """
    known = release_table.read().releases
    missing = [one for one in known if not _tagged(repository, one.version)]
    parent = f"{BRANCH}^0" if git.commit_of(repository, BRANCH) else None
    for one in missing:
        _add(repository, BRANCH, author, one.released, _Content(one.version, one.sha256), parent)
        parent = f"{BRANCH}^0"


def add_build(repository: Path, author: str, build: Release) -> None:
    """Add a user's own build, unless it is there: a commit without a parent, tag = name.

    Raises:
        FixcostError: git failed.
    """
    if not _tagged(repository, build.name):
        content = _Content(build.name, build.sha256)
        _add(repository, f"{BUILDS}/{build.name}", author, build.built, content, None)


def carry_builds(old: Path, new: Path) -> None:
    """Bring the user's own builds from one repository into another.

    Raises:
        FixcostError: git failed.
    """
    for ref in git.lines(old, "for-each-ref", "--format=%(refname)", f"refs/heads/{BUILDS}/"):
        tag = f"refs/tags/{ref.rpartition('/')[2]}"
        git.output(new, "fetch", "--quiet", "--no-tags", str(old), f"{ref}:{ref}", f"{tag}:{tag}")


def all_of(repository: Path) -> dict[str, str]:
    """The commits of all releases and builds by their names, the oldest first.

    Raises:
        FixcostError: git failed.
    """
    form = "--format=%(refname:lstrip=2) %(objectname)"
    tags = git.lines(repository, "for-each-ref", "--sort=creatordate", form, "refs/tags/")
    found = dict(line.split(" ") for line in tags)
    return {name: commit for name, commit in found.items() if name_of(repository, commit) == name}


def name_of(repository: Path, commit: str) -> str | None:
    """The release or build that a commit stands for; None for a commit with sources of its own."""
    try:
        text = git.output(repository, "cat-file", "blob", f"{commit}:{_FILE}")
        return msgspec.json.decode(text, type=_Content).name
    except (FixcostError, msgspec.DecodeError):
        return None


def _tagged(repository: Path, name: str) -> bool:
    return git.commit_of(repository, f"refs/tags/{name}") is not None


def _add(
    repository: Path,
    branch: str,
    author: str,
    date: datetime,
    content: _Content,
    parent: str | None,
) -> None:
    files = {_FILE: msgspec.json.format(msgspec.json.encode(content)) + b"\n"}
    message = f"vLLM {content.name}\n"
    stream = (
        *git.commit_stream(branch, author, int(date.timestamp()), message, files, parent),
        git.tag_stream(content.name, branch),
    )
    git.output(repository, "fast-import", "--quiet", stdin=b"".join(stream))
