"""Overlays of real commits on a tiny wheel: what Python then imports, and what it leaves alone."""

import os
import subprocess
import sys
from pathlib import Path

import fake_wheel
import pytest

from harness import overlay
from harness.errors import FixcostError


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "change")
    return git(folder, "rev-parse", "HEAD")


def python(path: list[Path], code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


def snapshot(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = fake_wheel.install(tmp_path / "site")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder / "vllm")], check=True)
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository that the wheel was built from, as a clone has it: no compiled files."""
    folder = fake_wheel.install(tmp_path / "clone")
    (folder / "vllm" / "_C.abi3.so").unlink()
    (folder / "setup.py").write_text("")
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    git(folder, "tag", "v0.28.0")
    return folder


@pytest.fixture
def changed(clone: Path) -> str:
    """A commit that changes, adds and deletes Python files and changes a data file."""
    package = clone / "vllm"
    (package / "models" / "mamba.py").write_text("WHO = 'commit'\n")
    (package / "models" / "new" / "deep").mkdir(parents=True)
    (package / "models" / "new" / "__init__.py").write_text("")
    (package / "models" / "new" / "deep" / "__init__.py").write_text("WHO = 'commit'\n")
    (package / "config" / "E=1,N=2.json").write_bytes(b"\xff\r\nnot text")
    (package / "config" / "old.py").unlink()
    return commit(clone)


def test_python_sees_the_commit_and_for_the_rest_the_wheel(
    tmp_path: Path, site: Path, clone: Path, changed: str
) -> None:
    laid = tmp_path / "laid"
    overlay.make(clone, changed, "v0.28.0", site, laid)

    seen = python(
        [laid, site],
        "import importlib.util as u, vllm.models.mamba as m, vllm.models.new.deep as d\n"
        "import vllm.config.same as s\n"
        "print(m.WHO, d.WHO, s.WHO, u.find_spec('vllm.config.old'), m.__file__)",
    )
    assert seen == f"commit commit wheel None {laid}/vllm/models/mamba.py"
    assert (laid / "vllm" / "config" / "E=1,N=2.json").read_bytes() == b"\xff\r\nnot text"
    assert (laid / "vllm" / "_C.abi3.so").read_text() == "compiled"


def test_running_a_commit_leaves_the_wheel_as_it_was(
    tmp_path: Path, site: Path, clone: Path, changed: str
) -> None:
    before = snapshot(site)
    laid = tmp_path / "laid"
    overlay.make(clone, changed, "v0.28.0", site, laid)

    python([laid, site], "import vllm.models.mamba, vllm.models.new.deep, vllm.config.same")

    assert snapshot(site) == before
    cache = laid / "vllm" / "models" / "__pycache__"
    assert [file.is_symlink() for file in cache.glob("mamba.*.pyc")] == [False]


def test_byte_code_of_unchanged_files_is_the_wheels(
    tmp_path: Path, site: Path, clone: Path, changed: str
) -> None:
    laid = tmp_path / "laid"
    overlay.make(clone, changed, "v0.28.0", site, laid)

    cache = laid / "vllm" / "config" / "__pycache__"
    same = next(cache.glob("same.*.pyc"))
    assert same.resolve() == next((site / "vllm" / "config" / "__pycache__").glob("same.*"))
    assert list(cache.glob("old.*")) == []
    seen = python([laid, site], "import vllm.config.same as s; print(s.__cached__)")
    assert Path(seen).is_symlink()


def test_folders_without_changes_are_single_links(
    tmp_path: Path, site: Path, clone: Path, changed: str
) -> None:
    laid = tmp_path / "laid"
    overlay.make(clone, changed, "v0.28.0", site, laid)

    assert (laid / "vllm" / "distributed").is_symlink()
    assert not (laid / "vllm" / "models").is_symlink()


@pytest.mark.parametrize("name", ["csrc/a.cu", "cmake/b.cmake", "CMakeLists.txt", "setup.py"])
def test_a_commit_that_needs_other_compiled_code_says_so(
    tmp_path: Path, site: Path, clone: Path, name: str
) -> None:
    (clone / name).parent.mkdir(exist_ok=True)
    (clone / name).write_text("changed")
    needy = commit(clone)

    with pytest.raises(FixcostError) as caught:
        overlay.make(clone, needy, "v0.28.0", site, tmp_path / "laid")
    assert str(caught.value) == (
        f"Commit {needy[:8]} needs other compiled code than the installed wheel: "
        f"{name} changed since v0.28.0."
    )
    assert not (tmp_path / "laid").exists()


def test_changes_outside_the_package_do_not_matter(tmp_path: Path, site: Path, clone: Path) -> None:
    (clone / "docs.md").write_text("")
    (clone / "csrc.md").write_text("")
    overlay.make(clone, commit(clone), "v0.28.0", site, tmp_path / "laid")
    assert (tmp_path / "laid").is_dir()


def test_an_unknown_commit_is_a_sentence(tmp_path: Path, site: Path, clone: Path) -> None:
    with pytest.raises(FixcostError, match="bad revision"):
        overlay.make(clone, "main", "v9.9.9", site, tmp_path / "laid")


def test_an_interrupted_overlay_is_made_anew(
    tmp_path: Path, site: Path, clone: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = tmp_path / "laid"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "write_bytes", interrupt)
        overlay.make(clone, changed, "v0.28.0", site, laid)
    assert not laid.exists()

    overlay.make(clone, changed, "v0.28.0", site, laid)
    assert python([laid, site], "import vllm.models.mamba as m; print(m.WHO)") == "commit"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clone", "laid", "site"]


def test_only_the_newest_overlays_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(["newest", "newer", "older", "oldest"]):
        (tmp_path / name / "vllm").mkdir(parents=True)
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))

    overlay.keep_newest(tmp_path, 2)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["newer", "newest"]
