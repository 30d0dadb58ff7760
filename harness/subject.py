"""The subject: the git repository whose commits are measured, without and with the fix.

By default `create` makes it out of the installed wheel's own Python files; `use` chooses a
clone of vLLM instead, and `restore` goes back.
"""

import difflib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import asv_conf, git, release_commits, wheel
from harness.errors import FixcostError
from harness.fix_removal import SCHEDULER, without_fix
from harness.releases import Release

FOLDER = ".subject"
BASE, FIX = "main", "fix-branch"

_AUTHOR = "fixcost <fixcost@localhost>"
_BASE_TIME, _FIX_TIME = 1767225600, 1767312000  # 2026-01-01 and the day after, 00:00 UTC
_FIX_MESSAGE = """\
Align the hit window in Mamba cache mode "all" too

A recurrent state is a point: the one stored at a chunk's end has consumed the chunk's last
token. In mode "all" the hit window was not rounded down to a chunk, so at an exact multiple
of the chunk the last prompt token was applied twice. (vLLM issue 51094, PR 51100)
"""


@dataclass(frozen=True)
class Subject:
    """A repository, its branches without and with the fix, and what the wheel was built from.

    `wheel_ref` is a tag or a commit of the repository; None where no vLLM is installed.
    """

    repository: Path
    base: str
    fix: str
    wheel_ref: str | None


def current(conf_path: Path) -> Subject:
    """The subject that asv.conf.json names.

    Raises:
        FixcostError: asv cannot read the file, or it does not name two branches.
    """
    from harness.asv_names import load_conf

    conf = load_conf(conf_path)
    if not isinstance(conf.repo, str):
        raise FixcostError(f'"repo" in {conf_path} must be a path.')
    if len(conf.branches) != 2:
        raise FixcostError(f'"branches" in {conf_path} must be two: without and with the fix.')
    repository = (conf_path.parent / conf.repo).resolve()
    base, fix = conf.branches
    return Subject(repository, base, fix, getattr(conf, "overlay_ref", None) or _installed_tag())


def restore(conf_path: Path) -> Subject:
    """Make the embedded subject beside asv.conf.json if need be, and choose it there."""
    subject = create(conf_path.parent / FOLDER, wheel.running_site_packages())
    _choose(conf_path, f"./{FOLDER}", subject.base, subject.fix, None)
    return subject


def use(
    path: Path,
    base: str = BASE,
    fix: str | None = None,
    *,
    wheel_commit: str | None = None,
    conf_path: Path,
) -> Subject:
    """Choose the vLLM clone at `path` as the subject in asv.conf.json.

    Args:
        fix: the branch with the fix; by default the one that is checked out in the clone.
        wheel_commit: what the installed wheel was built from, if that is not its release's tag.

    Raises:
        FixcostError: `path` is no clone of vLLM, or lacks a branch or the wheel's commit.
    """
    repository = path.expanduser().resolve()
    if not (repository / ".git").exists():
        raise FixcostError(f"{repository} is not a git repository: name the folder of a clone.")
    fix = fix or _checked_out(repository)
    if fix == base:
        raise FixcostError(f"The branch with the fix must not be {base} itself: check it out.")
    for branch in (base, fix):
        _check_branch(repository, branch)
    if git.commit_of(repository, base) == git.commit_of(repository, fix):
        raise FixcostError(f"{base} and {fix} are the same commit of {repository}.")
    wheel_ref = wheel_commit or wheel.installed(wheel.running_site_packages()).tag
    commit = git.commit_of(repository, wheel_ref)
    if commit is None:
        raise FixcostError(
            f"{repository} has no {wheel_ref}, which the installed wheel should be built from: "
            "run `git fetch --tags` there or name another with --wheel-commit."
        )
    _choose(conf_path, str(repository), base, fix, commit if wheel_commit else None)
    return Subject(repository, base, fix, commit if wheel_commit else wheel_ref)


def create(folder: Path, site_packages: Path) -> Subject:
    """Make the embedded subject in `folder`, unless it is there already for this very wheel.

    Branch `fix-branch`, tagged as the release, is the wheel; its parent `main` is the wheel with
    the fix taken out. The hashes depend on the wheel's Python files and version alone. Branch
    `releases` has a commit for each release that is known.

    Raises:
        FixcostError: there is no wheel or no fix in it, or `folder` holds something else. What
            was in `folder` is then still there.
    """
    release = wheel.installed(site_packages)
    subject = Subject(folder.resolve(), BASE, FIX, release.tag)
    if folder.exists():
        if _is_current(subject, release):
            release_commits.add_known(folder, _AUTHOR)
            return subject
        if not _is_untouched(folder):
            raise FixcostError(f"{folder} holds work that is not fixcost's: move it elsewhere.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as scratch:
        made = Path(scratch, "new")
        _build(made, release)
        release_commits.add_known(made, _AUTHOR)
        if folder.exists():
            release_commits.carry_builds(folder, made)
            folder.rename(Path(scratch, "old"))
        made.rename(folder)
    return subject


def add_build(subject: Subject, build: Release) -> None:
    """Give a user's own build a commit in the embedded subject.

    Raises:
        FixcostError: git failed.
    """
    release_commits.add_build(subject.repository, _AUTHOR, build)


def _build(folder: Path, release: wheel.Wheel) -> None:
    files = release.sources()
    if SCHEDULER not in files:
        raise FixcostError(f"The installed vLLM {release.version} has no {SCHEDULER}.")
    fixed = {SCHEDULER: files[SCHEDULER]}
    files[SCHEDULER] = without_fix(files[SCHEDULER].decode()).encode()
    base_message = f"vLLM {release.version} without the fix of PR 51100\n"
    history = (
        *git.commit_stream(BASE, _AUTHOR, _BASE_TIME, base_message, files),
        *git.commit_stream(FIX, _AUTHOR, _FIX_TIME, _FIX_MESSAGE, fixed, parent=BASE),
        git.tag_stream(release.tag, FIX),
        # Git describes a commit by the nearest tag, so asv would call this one "v...~1".
        git.tag_stream(f"{release.tag}-without-fix", BASE),
    )
    folder.mkdir()
    plain = ("--quiet", "--template=", "--object-format=sha1", f"--initial-branch={FIX}")
    git.output(folder, "init", *plain)
    git.output(folder, "config", "core.autocrlf", "false")
    git.output(folder, "fast-import", "--quiet", stdin=b"".join(history))
    git.output(folder, "reset", "--quiet", "--hard")


def _is_current(subject: Subject, release: wheel.Wheel) -> bool:
    """Whether the subject has all its names and its tag has exactly the wheel's files."""
    names = (subject.base, subject.fix, release.tag)
    if not all(git.commit_of(subject.repository, name) for name in names):
        return False
    listing = git.output(subject.repository, "ls-tree", "-r", "-z", release.tag).decode()
    committed = {line.partition("\t")[2]: line.split()[2] for line in listing.split("\0")[:-1]}
    return committed == {name: git.blob_hash(text) for name, text in release.sources().items()}


def _is_untouched(folder: Path) -> bool:
    """Whether all commits in `folder` are ours and nothing there waits to be committed."""
    try:
        authors = set(git.lines(folder, "log", "--all", "--format=%an <%ae>"))
        return authors == {_AUTHOR} and not git.lines(folder, "status", "--porcelain")
    except FixcostError:
        return False


def _choose(conf_path: Path, repo: str, base: str, fix: str, overlay_ref: str | None) -> None:
    values = {"repo": repo, "branches": [base, fix], "overlay_ref": overlay_ref}
    asv_conf.edit(conf_path, values)


def _installed_tag() -> str | None:
    try:
        return wheel.installed(wheel.running_site_packages()).tag
    except FixcostError:
        return None


def _checked_out(repository: Path) -> str:
    branch = git.lines(repository, "rev-parse", "--abbrev-ref", "HEAD")[0]
    if branch == "HEAD":
        raise FixcostError(f"No branch is checked out in {repository}: name the one with the fix.")
    return branch


def _check_branch(repository: Path, branch: str) -> None:
    arguments = ("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes")
    branches = git.lines(repository, *arguments)
    if branch not in branches:
        near = difflib.get_close_matches(branch, branches) or branches[:3]
        raise FixcostError(
            f"{repository} has no branch {branch}; it has {', '.join(near) or 'none at all'}."
        )
    if not git.lines(repository, "ls-tree", branch, "vllm/__init__.py"):
        raise FixcostError(f"Branch {branch} of {repository} has no vllm package: not a vLLM.")
