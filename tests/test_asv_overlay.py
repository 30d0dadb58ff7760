"""Real asv on the real installed wheel: both tips, a commit that cannot be overlaid, compare."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from harness import subject, wheel
from harness.asv_names import RUNNING_PYTHON

ROOT = Path(__file__).parents[1]
SITE = wheel.running_site_packages()

pytestmark = pytest.mark.skipif(
    not list(SITE.glob("vllm*.dist-info")), reason="no vLLM wheel is installed"
)

BENCHMARKS = '''
import importlib.util
import os
import time
from importlib import metadata
from pathlib import Path

from harness.progress import track


class Alignment:
    """Reads what it imports; says how many cache modes the scheduler aligns."""

    version = "1"

    def setup_cache(self):
        with track(2, "cells") as step:
            step("one")
            while Path(os.environ["ASV_CONF_DIR"], "wait").exists():
                time.sleep(0.1)
            step("two")
        package = Path(importlib.util.find_spec("vllm").origin).parent
        path = "distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py"
        plugins = metadata.entry_points(group="vllm.general_plugins")
        return {
            "modes": 2 if '            "all",' in (package / path).read_text() else 1,
            "is overlay": "overlays" in str(package),
            "plugins": len(plugins),
        }

    def track_modes(self, seen):
        return seen["modes"]

    def track_overlaid(self, seen):
        return int(seen["is overlay"])

    def track_plugins(self, seen):
        return seen["plugins"]
'''


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Project:
    """A folder with our asv.conf.json, a subject and benchmarks that only look around."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = Path(shutil.copy(ROOT / "asv.conf.json", folder))
        (folder / "benchmarks").mkdir()
        (folder / "benchmarks" / "__init__.py").write_text("")
        (folder / "benchmarks" / "alignment.py").write_text(BENCHMARKS)
        self.subject = subject.restore(self.conf).repository
        self.asv("machine", "--yes", "--machine", "box")

    def start(self, *arguments: str, python: str = sys.executable) -> subprocess.Popen[str]:
        home = {"HOME": str(self.folder), "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
        return subprocess.Popen(
            [python, "-m", "asv", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, **home},
        )

    def asv(
        self, *arguments: str, returns: int = 0, python: str = sys.executable
    ) -> tuple[str, str]:
        """What asv writes to stdout and to stderr."""
        process = self.start(*arguments, python=python)
        written = process.communicate()
        assert process.returncode == returns, "".join(written)
        return written

    def run(self, *arguments: str, returns: int = 0) -> tuple[str, str]:
        return self.asv("run", "--machine", "box", *arguments, returns=returns)

    def results(self, name: str) -> dict[str, object]:
        commit = git(self.subject, "rev-parse", name)
        (file,) = (self.folder / "results" / "box").glob(f"{commit[:8]}-*.json")
        rows = json.loads(file.read_text())["results"]
        return {key.rpartition(".")[2]: row[0] and row[0][0] for key, row in rows.items()}

    def environment(self) -> Path:
        (folder,) = (self.folder / ".asv" / "env").iterdir()
        return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def bare_run(project: Project) -> tuple[str, str]:
    return project.run()


@pytest.fixture(scope="module")
def needy(project: Project) -> str:
    """A commit that changes compiled code, with two good ones to run beside it."""
    git(project.subject, "checkout", "--quiet", "-b", "needy", "fix-branch")
    (project.subject / "csrc").mkdir()
    (project.subject / "csrc" / "kernel.cu").write_text("")
    git(project.subject, "add", "-A")
    git(project.subject, "commit", "--quiet", "-m", "another kernel")
    (project.folder / "hashes").write_text("main\nneedy\nfix-branch\n")
    return git(project.subject, "rev-parse", "needy")


@pytest.mark.usefixtures("bare_run")
def test_a_bare_run_takes_both_tips(project: Project) -> None:
    main, fixed = project.results("main"), project.results("fix-branch")
    assert (main["track_modes"], fixed["track_modes"]) == (1, 2)
    assert main["track_overlaid"] == fixed["track_overlaid"] == 1
    assert main["track_plugins"] == fixed["track_plugins"] != 0


def test_progress_and_asvs_own_lines_do_not_mix(bare_run: tuple[str, str]) -> None:
    stdout, stderr = bare_run
    assert stderr.splitlines()[-1] == "cells: 2/2 (two)"
    lines = stdout.splitlines()
    after = [lines[i + 1] for i, line in enumerate(lines) if re.search(r"up alignment:\d+$", line)]
    assert [line.rpartition(" ")[2] for line in after] == ["ok", "ok"]


@pytest.mark.usefixtures("bare_run")
def test_compare_names_both_sides(project: Project) -> None:
    table, _ = project.asv("compare", "main", "fix-branch")
    tag = wheel.installed(SITE).tag
    assert f"<{tag}-without-fix>" in table and f"<{tag}>" in table
    (row,) = (line for line in table.splitlines() if "track_modes" in line)
    assert [cell.strip() for cell in row.split("|")[1:5]] == ["+", "1", "2", "2"]


@pytest.mark.usefixtures("bare_run")
def test_a_commit_that_cannot_be_overlaid_fails_alone(project: Project, needy: str) -> None:
    shutil.rmtree(project.folder / "results" / "box")

    stdout, _ = project.run("HASHFILE:hashes", returns=2)

    reason = (
        f"Commit {needy[:8]} needs other compiled code than the installed wheel: csrc/kernel.cu"
    )
    assert reason in stdout
    assert project.results("main")["track_modes"] == 1
    assert project.results("fix-branch")["track_modes"] == 2
    assert set(project.results("needy").values()) == {None}
    table, _ = project.asv("compare", "fix-branch", "needy")
    assert table.count("failed") == 3


@pytest.mark.usefixtures("needy")
@pytest.mark.parametrize("chosen", ["main..fix-branch", "fix-branch^!"])
def test_ranges_and_single_commits(project: Project, chosen: str) -> None:
    shutil.rmtree(project.folder / "results", ignore_errors=True)

    project.run(chosen)

    assert project.results("fix-branch")["track_modes"] == 2
    assert len(list((project.folder / "results" / "box").glob("*overlay*.json"))) == 1


def test_an_overlay_that_was_deleted_is_made_again(project: Project) -> None:
    project.run("main^!")
    shutil.rmtree(project.environment() / "overlays")

    project.run("main^!")

    assert (project.results("main")["track_modes"], project.results("main")["track_overlaid"]) == (
        1,
        1,
    )


def test_the_engine_is_imported_from_the_overlay(project: Project) -> None:
    project.run("main^!")
    code = (
        "import inspect, vllm, asv_runner, harness\n"
        "from vllm.distributed.kv_transfer.kv_connector.v1.offloading import scheduler\n"
        "print(vllm.__file__)\n"
        "print(inspect.getsource(scheduler.resolve_mamba_align_size))\n"
    )
    variables = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    variables.pop("PYTHONPATH", None)
    seen = subprocess.run(
        [project.environment() / "bin" / "python", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=project.folder,
        env=variables,
    ).stdout
    assert str(project.environment() / "overlays") in seen
    assert 'kv_spec.mamba_cache_mode == "align":' in seen


def test_without_a_wheel_there_is_one_clear_sentence(project: Project, tmp_path: Path) -> None:
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    packages = tmp_path / "bare" / "lib" / f"python{RUNNING_PYTHON}" / "site-packages"
    (packages / "lab.pth").write_text(f"{SITE}\n")

    python = str(tmp_path / "bare" / "bin" / "python")
    stdout, _ = project.asv("run", "--machine", "box", returns=1, python=python)

    assert stdout.splitlines()[-1].startswith(f"·· No vLLM wheel is installed in {packages}")


def test_an_interrupt_ends_asv_in_one_line(project: Project) -> None:
    (project.folder / "wait").touch()
    process = project.start("run", "--machine", "box", "main^!")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("cells: ")

    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    (project.folder / "wait").unlink()

    assert process.returncode == 1
    assert stdout.splitlines()[-1].endswith(" Interrupted.")
    assert "Traceback" not in stderr
