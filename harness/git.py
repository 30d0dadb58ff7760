"""Git commands on a repository, deaf to the variables that a hook or a caller may have set."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.errors import FixcostError

# A git hook sets these for its children; they would redirect every command to its own repository.
_POINTERS = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)


def output(repository: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run `git arguments` in `repository` and return what it printed.

    Raises:
        FixcostError: git is not installed, or it failed: the sentence holds git's own reason.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _POINTERS}
    # Without a ceiling, a folder that is no repository would stand for the one around it.
    ceiling = str(repository.resolve().parent)
    environment |= {"LC_ALL": "C", "GIT_CEILING_DIRECTORIES": ceiling}
    try:
        finished = subprocess.run(
            ["git", "-C", str(repository), *arguments],
            input=stdin,
            capture_output=True,
            check=True,
            env=environment,
        )
    except FileNotFoundError:
        raise FixcostError("git is not installed: install it and try again.") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().replace("\n", "; ")
        raise FixcostError(f"git {arguments[0]} failed in {repository}: {reason}") from None
    return finished.stdout


def lines(repository: Path, *arguments: str) -> list[str]:
    """The lines that `git arguments` prints in `repository`; raises like `output`."""
    return output(repository, *arguments).decode(errors="surrogateescape").splitlines()


def commit_of(repository: Path, name: str) -> str | None:
    """The full hash of the commit that `name` (branch, tag, hash) means; None if it means none."""
    try:
        return lines(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")[0]
    except FixcostError:
        return None


def blob_hash(content: bytes) -> str:
    """The hash under which git keeps a file with this content."""
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest()


def commit_stream(
    branch: str,
    author: str,
    time: int,
    message: str,
    files: dict[str, bytes],
    parent: str | None = None,
) -> Iterator[bytes]:
    """A commit of `files` (on top of branch `parent`) for `git fast-import`; `time` is in UTC."""
    yield f"commit refs/heads/{branch}\ncommitter {author} {time} +0000\n".encode()
    yield _data(message.encode())
    if parent:
        yield f"from refs/heads/{parent}\n".encode()
    for name, content in files.items():
        yield f"M 100644 inline {name}\n".encode() + _data(content)


def tag_stream(tag: str, branch: str) -> bytes:
    """A tag on the tip of `branch` for `git fast-import`."""
    return f"reset refs/tags/{tag}\nfrom refs/heads/{branch}\n\n".encode()


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)
