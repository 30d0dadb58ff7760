"""The main job in a copy of the project: interrupted, gone on with, and read in every form."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import filelock
import pytest
import sweep_table

from harness import asv_names, git, record
from harness.cells import Cell
from harness.vocabulary import Arm, Offset, Scenario

ROOT = Path(__file__).parents[1]
FIXCOST = [sys.executable, "-c", "from harness.cli import main; main()"]
ASV = [sys.executable, "-m", "asv"]
SAMPLES = 2


@dataclass(frozen=True)
class Project:
    """A copy of the project in which the main job was run."""

    folder: Path
    environment: dict[str, str]
    interrupted: "subprocess.CompletedProcess[str]"
    kept: dict[str, int]
    """The cells that the interrupted run had finished, and when."""
    finished: "subprocess.CompletedProcess[str]"

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return run(self.folder, self.environment, *command)

    def commit(self, branch: str) -> str:
        found = git.commit_of(self.folder / ".subject", branch)
        assert found is not None
        return found

    def sweep(self, branch: str) -> Path:
        (host,) = (self.folder / "sweeps").iterdir()
        return host / self.commit(branch)[:12] / "cpu-tiny"


def run(
    folder: Path, environment: dict[str, str], *command: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def copy_project(folder: Path) -> None:
    listed = git.lines(ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
    for name in listed:
        if not name.startswith("results/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def finished_cells(folder: Path) -> dict[str, int]:
    found = (folder / "sweeps").glob("*/*/cpu-tiny.partial/cells/*.json")
    return {path.name: path.stat().st_mtime_ns for path in found}


def children_of(group: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-eo", "pgid=,args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if line.split()[0] == str(group)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project with spaces")
    copy_project(folder)
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "FIXCOST_SAMPLES": str(SAMPLES),
    }
    with subprocess.Popen(
        [*FIXCOST, "bench"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        while len(finished_cells(folder)) < 3:
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
        output = running.communicate()
    interrupted = subprocess.CompletedProcess([], running.returncode, *output)
    assert children_of(running.pid) == []
    kept = finished_cells(folder)
    finished = run(folder, environment, *FIXCOST, "bench")
    return Project(folder, environment, interrupted, kept, finished)


def test_interrupt_is_one_sentence(project: Project) -> None:
    assert project.interrupted.returncode == 130
    assert project.interrupted.stderr.endswith("interrupted; start it again and it goes on.\n")
    assert "Traceback" not in project.interrupted.stderr + project.interrupted.stdout


def test_rerun_goes_on_where_it_was(project: Project) -> None:
    assert project.finished.returncode == 0, project.finished.stderr
    assert len(project.kept) >= 3
    after = {
        path.name: path.stat().st_mtime_ns
        for branch in ("main", "fix-branch")
        for path in (project.sweep(branch) / "cells").iterdir()
        if project.kept.get(path.name) == path.stat().st_mtime_ns
    }
    assert after == project.kept


def test_verdict_in_plain_words(project: Project) -> None:
    said = " ".join(project.finished.stdout.split())
    assert "Outputs of main are WRONG at every exact boundary (2, 3, 4 and 8 chunks)" in said
    assert "Outputs of fix-branch are right in all 32 cells." in said
    assert "The known corruption was caught at every exact boundary" in said
    assert "Traceback" not in project.finished.stdout + project.finished.stderr


def test_progress_is_visible(project: Project) -> None:
    assert "Sweep of cpu-tiny: 32/32" in project.finished.stderr
    assert "reload.Reload.track_ttft" in project.finished.stdout


def test_table_of_each_branch(project: Project) -> None:
    """`shipped` is the unaligned arm on main, and the aligned one on fix-branch."""
    for branch, arm in (("main", Arm.RELOAD_UNALIGNED), ("fix-branch", Arm.RELOAD_ALIGNED)):
        swept = record.read(project.sweep(branch))
        assert swept.header.provenance.commit == project.commit(branch)
        assert (swept.header.shipped_alignment is None) == (branch == "main")
        assert len(swept.cells) == 32
        sweep_table.check(swept, shipped=arm)


def test_asv_has_every_metric_with_its_samples(project: Project) -> None:
    machine = next(path.parent.name for path in (project.folder / "results").glob("*/machine.json"))
    conf = project.folder / "asv.conf.json"
    on_main = asv_names.stored(conf, machine, project.commit("main"))
    boundary = Cell(Scenario.EXTENDED, 3, Offset.EXACT)
    swept = record.read(project.sweep("main")).cells[boundary].samples
    shipped = ("reload/shipped", "extended", "0", 3)
    aligned = ("reload/aligned", "extended", "0", 3)

    assert on_main["reload.Reload.track_ttft"][shipped].value is None
    assert on_main["reload.Reload.track_reload_time"][shipped].value is None
    ttft = on_main["reload.Reload.track_ttft"][aligned]
    assert ttft.samples == tuple(s.arms[Arm.RELOAD_ALIGNED].ttft for s in swept)
    verdicts = on_main["reload.Reload.track_wrong_output"]
    assert (verdicts[shipped].value, verdicts[aligned].value) == (1.0, 0.0)
    wrong = on_main["reload.Reload.track_wrong_tokens"]
    assert wrong[shipped].value == max(s.arms[Arm.RELOAD_SHIPPED].wrong_tokens for s in swept) > 0
    assert wrong[aligned].value == 0
    drift = on_main["reload.Reload.track_logprob_drift"]
    assert drift[shipped].value == max(s.arms[Arm.RELOAD_SHIPPED].logprob_drift for s in swept)
    assert on_main["reload.Reload.track_recomputed_tokens"][aligned].value == 128
    assert on_main["reload.Reload.track_recomputed_tokens"][shipped].value == 1
    assert on_main["reload.Reload.track_reload_bytes"][aligned].value == 411_648
    cost = on_main["reload.FixCost.track_fix_cost"]["extended", "0", 3]
    assert cost.samples == tuple(
        s.arms[Arm.RELOAD_ALIGNED].ttft / s.arms[Arm.RELOAD_UNALIGNED].ttft for s in swept
    )


def test_compare_and_publish_work_as_asv_has_them(project: Project) -> None:
    compared = project.run(*ASV, "compare", "main", "fix-branch")
    assert compared.returncode == 0, compared.stderr
    row = next(
        line
        for line in compared.stdout.splitlines()
        if "track_ttft('reload/shipped', 'repeat', '0', 2)" in line
    )
    assert "failed" in row
    published = project.run(*ASV, "publish")
    assert published.returncode == 0, published.stdout + published.stderr
    assert "Skipping results" not in published.stdout + published.stderr
    assert (project.folder / ".asv" / "html" / "index.html").is_file()


def test_comparison_for_programs(project: Project) -> None:
    compared = project.run(*FIXCOST, "compare", "main", "fix-branch", "--format", "json")
    rows = json.loads(compared.stdout)["rows"]
    assert len(rows) == 32
    wrong = [row["cell"] for row in rows if row["base"]["verdict"] == "wrong"]
    assert {(cell["chunks"], cell["offset"]) for cell in wrong} == {(k, "0") for k in (2, 3, 4, 8)}
    assert all(row["fix"]["verdict"] == "equal" for row in rows)
    assert all(row["base"]["ttft"] is None for row in rows if row["base"]["verdict"] == "wrong")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "main", "no-such-branch"], "has no branch, tag or commit no-such-branch"),
        (["compare", "main", "--format", "xml"], "Invalid value for '--format'"),
        (["sweep", "--profile", "gpu"], "There is no profile 'gpu'"),
        (["sweep", "--profile", "nemotron-nano-9b-v2"], "needs an NVIDIA GPU"),
        (["sweep", "--chunks", "0"], "Invalid value for '--chunks'"),
        (["sweep", "--model", "nowhere"], "nowhere holds no config.json"),
        (["report", "nowhere"], "There is no record in nowhere"),
        (["sweep", "--out", "/"], "cannot be a record"),
        (["sweep", "--chunks", "1"], "cannot see the bug"),
        (["subject", "use", "nowhere"], "is not a git repository"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    project: Project, arguments: list[str], sentence: str
) -> None:
    if "nemotron-nano-9b-v2" in arguments and Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a GPU")
    refused = project.run(*FIXCOST, *arguments)
    assert refused.returncode == 2
    assert sentence in " ".join(refused.stderr.replace("│", " ").split())
    assert "Traceback" not in refused.stderr


def test_comparison_for_a_pull_request(project: Project) -> None:
    shown = project.run(*FIXCOST, "compare", "main", "fix-branch", "--format", "md")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == "### fixcost: `main` against `fix-branch`"
    assert lines[2].startswith("**DO NOT TRUST THIS COMPARISON: the run of main and fix-branch")
    assert "It is newly right in 8 of 32 cells." in lines[2]


def test_pictures_are_written_in_both_forms(project: Project) -> None:
    written = project.run(*FIXCOST, "plot", "pictures")
    assert written.returncode == 0, written.stderr
    names = ["fix-cost", *(f"{kind}-{s}" for s in Scenario for kind in ("ttft", "moved"))]
    assert {path.name for path in (project.folder / "pictures").iterdir()} == {
        f"{name}.{form}" for name in names for form in ("svg", "png")
    }
    for name in names:
        assert (project.folder / "pictures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    drawn = (project.folder / "pictures" / "ttft-repeat.svg").read_text()
    assert 'id="ttft-repeat-reload-unaligned-wrong"' in drawn


def test_further_starts_are_added_to_what_is_stored(project: Project) -> None:
    first = json.loads(project.run(*FIXCOST, "compare", "--format", "json").stdout)
    assert first["between"]["change"] == "too few starts to tell"
    added = project.run(*FIXCOST, "bench", "--more-starts", "1")
    assert added.returncode == 0, added.stderr
    assert "Start 1 of 1 more of each branch." in added.stdout
    both = json.loads(project.run(*FIXCOST, "compare", "--format", "json").stdout)
    assert both["between"]["ratio"]["count"] == 2
    assert both["between"]["change"] != "too few starts to tell"
    for before, after in zip(first["rows"], both["rows"], strict=True):
        assert after["fix_costs"][:SAMPLES] == before["fix_costs"]
        assert len(after["fix_costs"]) == 2 * SAMPLES
        assert after["base"]["verdict"] == before["base"]["verdict"]


def test_runs_of_different_models_are_not_compared(project: Project) -> None:
    commit = project.commit("fix-branch")[:8]
    results = next((project.folder / "results").glob(f"*/{commit}-*.json"))
    whole = results.read_text()
    identity = re.search(r'"reload.Run.track_identity": \[\[(\d+)', whole)
    assert identity is not None
    results.write_text(whole.replace(identity[1], str(int(identity[1]) + 1)))
    try:
        refused = project.run(*FIXCOST, "compare")
        assert refused.returncode == 2
        assert "were not measured with the same profile and model" in refused.stderr
    finally:
        results.write_text(whole)
    assert project.run(*FIXCOST, "compare").returncode == 0


def test_damaged_results_file_is_named(project: Project) -> None:
    results = next((project.folder / "results").glob(f"*/{project.commit('main')[:8]}-*.json"))
    whole = results.read_bytes()
    results.write_bytes(whole[: len(whole) // 2])
    try:
        refused = project.run(*FIXCOST, "compare")
        assert refused.returncode == 2
        assert f"{results.name} is damaged" in refused.stderr
        assert "Traceback" not in refused.stderr
    finally:
        results.write_bytes(whole)
    assert project.run(*FIXCOST, "compare").returncode == 0


def test_report_of_one_sweep(project: Project) -> None:
    reported = project.run(*FIXCOST, "report", str(project.sweep("main")))
    assert reported.returncode == 0, reported.stderr
    said = " ".join(reported.stdout.split())
    assert f"commit {project.commit('main')[:8]} are WRONG at every exact boundary" in said
    for_programs = project.run(*FIXCOST, "report", str(project.sweep("main")), "--format", "json")
    assert len(json.loads(for_programs.stdout)["cells"]) == 32


def test_every_benchmark_is_found_by_asv(project: Project) -> None:
    names = set(json.loads((project.folder / "results" / "benchmarks.json").read_text()))
    assert {f"reload.Reload.track_{metric}" for metric in (
        "ttft",
        "reload_bytes",
        "reload_time",
        "recomputed_tokens",
        "wrong_tokens",
        "logprob_drift",
        "wrong_output",
    )} | {
        "reload.FixCost.track_fix_cost",
        "scheduler.Lookup.time_lookup",
        "scheduler.Alignment.time_resolve_mamba_align_size",
    } <= names  # fmt: skip


def test_sweep_that_fails_under_asv_says_why(project: Project) -> None:
    """Last, because asv then forgets what it had measured of the branch."""
    places = [project.sweep(branch) for branch in ("main", "fix-branch")]
    with ExitStack() as held:
        for place in places:
            held.enter_context(filelock.FileLock(place.with_name(f".{place.name}.lock")))
        refused = project.run(*FIXCOST, "bench")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("fixcost: Another sweep is writing")
    assert "Traceback" not in refused.stdout + refused.stderr
    assert [len(record.read(place).cells) for place in places] == [32, 32]
    compared = project.run(*FIXCOST, "compare", "--format", "json")
    assert compared.returncode == 3, compared.stderr
    answer = json.loads(compared.stdout)
    assert {one["outcome"] for one in answer["outcomes"]} == {"infrastructure"}
    assert answer["lead"].startswith("Nothing was measured on both main and fix-branch.")
