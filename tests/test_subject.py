"""The embedded subject, the choice of another, and the edits to asv.conf.json, with real git."""

import os
import shutil
import subprocess
from pathlib import Path

import fake_wheel
import pytest

from harness import subject, wheel
from harness.errors import FixcostError
from harness.fix_removal import without_fix

CONF = Path(__file__).parents[1] / "asv.conf.json"
REAL_SITE = wheel.running_site_packages()
UPSTREAM_CHANGE = """\
-        if isinstance(kv_spec, MambaSpec) and kv_spec.mamba_cache_mode == "align":
+        if isinstance(kv_spec, MambaSpec) and kv_spec.mamba_cache_mode in (
+            "align",
+            "all",
+        ):
"""

needs_vllm = pytest.mark.skipif(
    not list(REAL_SITE.glob("vllm*.dist-info")), reason="no vLLM wheel is installed"
)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, name: str, content: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", f"change {name}")
    return git(folder, "rev-parse", "HEAD")


def hashes(folder: Path) -> str:
    return git(folder, "for-each-ref", "--format=%(refname) %(objectname)")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return fake_wheel.install(tmp_path / "site")


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return Path(shutil.copy(CONF, tmp_path / "asv.conf.json"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A user's clone: branches `trunk` and `my-fix` (checked out), no tag."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=trunk")
    commit(folder, "vllm/__init__.py", "")
    git(folder, "checkout", "--quiet", "-b", "my-fix")
    commit(folder, "vllm/fix.py", "")
    return folder


def test_the_fix_is_one_commit_on_top_of_the_wheel_without_it(tmp_path: Path, site: Path) -> None:
    made = subject.create(tmp_path / ".subject", site)

    folder = made.repository
    assert (made.base, made.fix, made.wheel_ref) == ("main", "fix-branch", "v0.28.0")
    assert git(folder, "rev-parse", "fix-branch~1") == git(folder, "rev-parse", "main")
    assert git(folder, "rev-list", "--count", "fix-branch") == "2"
    assert git(folder, "rev-parse", "v0.28.0") == git(folder, "rev-parse", "fix-branch")
    assert git(folder, "diff", "--name-only", "main", "fix-branch") == fake_wheel.SCHEDULER
    for branch, source in (("main", fake_wheel.WITHOUT_FIX), ("fix-branch", fake_wheel.WITH_FIX)):
        assert git(folder, "show", f"{branch}:{fake_wheel.SCHEDULER}") == source.strip()
    assert git(folder, "ls-tree", "-r", "--name-only", "main").splitlines() == sorted(
        str(file.relative_to(site)) for file in site.rglob("vllm/**/*.py")
    )
    assert git(folder, "status", "--porcelain") == ""


def test_hashes_depend_on_nothing_but_the_wheel(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = subject.create(tmp_path / "plain", site)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[user]\nname = x\n[commit]\ngpgSign = true\n[tag]\ngpgSign = true\n"
        "[init]\ndefaultBranch = trunk\n[core]\nautocrlf = true\n"
        "[i18n]\ncommitEncoding = latin1\n"
    )
    other = tmp_path / "other"
    other.mkdir()
    for name, value in {
        "HOME": str(home),
        "GIT_DIR": str(other),
        "GIT_INDEX_FILE": str(other / "index"),
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00",
        "GIT_COMMITTER_NAME": "somebody",
        "GIT_DEFAULT_HASH": "sha256",
        "LC_ALL": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
    }.items():
        monkeypatch.setenv(name, value)
    umask = os.umask(0o077)
    try:
        hostile = subject.create(tmp_path / "hostile", site)
    finally:
        os.umask(umask)
    monkeypatch.undo()

    assert hashes(hostile.repository) == hashes(plain.repository)
    checked_out = hostile.repository / fake_wheel.SCHEDULER
    assert checked_out.read_bytes() == fake_wheel.WITH_FIX.encode()
    assert list(other.iterdir()) == []


def test_one_that_is_there_for_this_wheel_is_left_alone(tmp_path: Path, site: Path) -> None:
    folder = subject.create(tmp_path / ".subject", site).repository
    mine = commit(folder, "vllm/__init__.py", "# my experiment")

    subject.create(folder, site)

    assert git(folder, "rev-parse", "fix-branch") == mine


def test_another_wheel_gets_another_subject(tmp_path: Path, site: Path) -> None:
    folder = subject.create(tmp_path / ".subject", site).repository
    before = hashes(folder)
    (site / "vllm" / "config" / "same.py").write_text("changed")

    subject.create(folder, site)

    assert hashes(folder) != before
    assert git(folder, "show", "v0.28.0:vllm/config/same.py") == "changed"
    assert [path.name for path in tmp_path.iterdir() if "subject" in path.name] == [".subject"]


@pytest.mark.parametrize("committed", [True, False])
def test_work_of_the_users_own_is_never_replaced(
    tmp_path: Path, site: Path, committed: bool
) -> None:
    folder = subject.create(tmp_path / ".subject", site).repository
    if committed:
        commit(folder, "mine.txt", "mine")
    else:
        (folder / "mine.txt").write_text("mine")
    (site / "vllm" / "config" / "same.py").write_text("changed")

    with pytest.raises(FixcostError, match="move it elsewhere"):
        subject.create(folder, site)
    assert (folder / "mine.txt").read_text() == "mine"


def test_a_folder_inside_another_repository_is_not_taken_for_it(tmp_path: Path, site: Path) -> None:
    outer = subject.create(tmp_path / "outer", site).repository
    (outer / "inner").mkdir()

    with pytest.raises(FixcostError, match="move it elsewhere"):
        subject.create(outer / "inner", site)


@pytest.mark.parametrize(
    "scheduler",
    [
        pytest.param(fake_wheel.WITHOUT_FIX, id="no fix"),
        pytest.param(
            fake_wheel.WITH_FIX.replace(
                "    return size",
                '    assert group.mamba_cache_mode in ("all", "align")\n    return size',
            ),
            id="two places",
        ),
        pytest.param(fake_wheel.WITH_FIX.replace("resolve_", "find_"), id="no function"),
    ],
)
def test_without_exactly_one_fix_nothing_is_left_behind(tmp_path: Path, scheduler: str) -> None:
    site = fake_wheel.install(tmp_path / "site", scheduler=scheduler)

    with pytest.raises(FixcostError, match="PR 51100"):
        subject.create(tmp_path / "work" / ".subject", site)
    assert list((tmp_path / "work").iterdir()) == []


def test_the_same_words_elsewhere_in_the_file_are_not_touched() -> None:
    assert without_fix(fake_wheel.WITH_FIX) == fake_wheel.WITHOUT_FIX


def test_no_wheel_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FixcostError, match="No vLLM wheel is installed"):
        subject.create(tmp_path / ".subject", tmp_path)


@needs_vllm
def test_the_installed_vllm_differs_by_the_change_of_the_pull_request(tmp_path: Path) -> None:
    first = subject.create(tmp_path / "first", REAL_SITE).repository
    second = subject.create(tmp_path / "second", REAL_SITE).repository

    assert hashes(first) == hashes(second)
    difference = git(first, "diff", "main", "fix-branch").splitlines()
    changed = [line for line in difference if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == UPSTREAM_CHANGE.splitlines()


def test_the_shipped_configuration_names_the_embedded_subject() -> None:
    chosen = subject.current(CONF)
    assert chosen.repository == CONF.parent / ".subject"
    assert (chosen.base, chosen.fix) == ("main", "fix-branch")


@needs_vllm
def test_a_clone_is_chosen_and_the_embedded_one_restored(conf: Path, clone: Path) -> None:
    shipped = conf.read_text()
    git(clone, "tag", wheel.installed(REAL_SITE).tag, "trunk")

    used = subject.use(clone, base="trunk", conf_path=conf)

    assert used == subject.Subject(clone, "trunk", "my-fix", wheel.installed(REAL_SITE).tag)
    assert subject.current(conf) == used
    changed = [
        (old, new)
        for old, new in zip(shipped.splitlines(), conf.read_text().splitlines(), strict=True)
        if old != new
    ]
    assert changed == [
        ('    "repo": "./.subject",', f'    "repo": "{clone}",'),
        (
            '    "branches": ["main", "fix-branch"],',
            '    "branches": ["trunk", "my-fix"],',
        ),
    ]
    restored = subject.restore(conf)
    assert conf.read_text() == shipped
    assert subject.current(conf) == restored
    assert git(restored.repository, "rev-parse", "--abbrev-ref", "HEAD") == "fix-branch"


@needs_vllm
def test_the_wheels_commit_may_be_named(conf: Path, clone: Path) -> None:
    first = git(clone, "rev-parse", "trunk")

    with pytest.raises(FixcostError, match="git fetch --tags"):
        subject.use(clone, base="trunk", conf_path=conf)
    subject.use(clone, base="trunk", wheel_commit="trunk", conf_path=conf)

    assert subject.current(conf).wheel_ref == first


def test_an_unknown_branch_is_answered_with_the_nearest(conf: Path, clone: Path) -> None:
    with pytest.raises(FixcostError, match=r"no branch my-fux; it has my-fix\.$"):
        subject.use(clone, base="trunk", fix="my-fux", conf_path=conf)
    assert conf.read_text() == CONF.read_text()


def test_base_and_fix_must_differ(conf: Path, clone: Path) -> None:
    with pytest.raises(FixcostError, match="must not be my-fix itself"):
        subject.use(clone, base="my-fix", conf_path=conf)


def test_a_clone_of_something_else_is_refused(conf: Path, tmp_path: Path) -> None:
    folder = tmp_path / "else"
    folder.mkdir()
    with pytest.raises(FixcostError, match="not a git repository"):
        subject.use(folder, conf_path=conf)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "readme", "")
    git(folder, "checkout", "--quiet", "-b", "work")
    with pytest.raises(FixcostError, match="has no vllm package"):
        subject.use(folder, conf_path=conf)


def test_a_configuration_that_cannot_be_edited_stays_as_it_is(conf: Path, clone: Path) -> None:
    text = CONF.read_text().replace('"repo": "./.subject"', '"repo" :\n // here\n "./.subject"')
    conf.write_text(text)

    with pytest.raises(FixcostError, match='"repo" on exactly one line'):
        subject.use(clone, base="trunk", wheel_commit="trunk", conf_path=conf)
    assert conf.read_text() == text
    assert [path.name for path in conf.parent.glob(".asv*")] == []
