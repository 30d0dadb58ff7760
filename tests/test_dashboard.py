"""The published site in a real browser, made from the committed reference run.

What must be on it is known without looking at our code: at each exact boundary the unaligned arm
is wrong, and so is what main ships; everything else is equal (`sweep_table`).
"""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from harness import git

ROOT = Path(__file__).parents[1]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
MACHINE = "two-core-cpu"
CELLS = 16
"""Of a scenario: four prompt lengths, four offsets."""
BOUNDARIES = 4
FIRST_PAGE_BYTES = 1_000_000


def copy_project(folder: Path) -> None:
    for name in git.lines(ROOT, "ls-files", "--cached", "--others", "--exclude-standard"):
        mine = not name.startswith("results/") or name.startswith(f"results/{MACHINE}/")
        if (mine or name == "results/benchmarks.json") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def fixcost(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from harness.cli import main; main()", *arguments]
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dashboard")
    copy_project(folder)
    built = fixcost(folder, "dashboard", "--build-only")
    assert built.returncode == 0, built.stderr
    return folder / ".asv" / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        reason = "no browser here: Debian's package chromium has one"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-background-networking", "--disable-sync"]
        opened = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield opened
        opened.close()


class Watched:
    """A page with all that it asked for and complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.on(
            "console", lambda said: self.errors.append(said.text) if said.type == "error" else 0
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("response", self._answered)

    def _answered(self, response: object) -> None:
        if response.status >= 400:  # type: ignore[attr-defined]
            self.errors.append(response.url)  # type: ignore[attr-defined]

    def check(self, address: str) -> None:
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith((address, "data:"))] == []


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    seen = Watched(page)
    yield seen
    seen.check(address)
    page.close()


@pytest.mark.parametrize("place", ["index.html", "history.html", "releases.html"])
def test_our_pages_ask_nobody_else_and_are_small(
    watched: Watched, address: str, site: Path, place: str
) -> None:
    watched.page.goto(f"{address}/{place}")
    assert watched.page.locator("h1").count() == 1
    assert (site / place).stat().st_size < FIRST_PAGE_BYTES
    assert watched.page.locator("script").count() == 0


def test_answer_comes_first(watched: Watched, address: str) -> None:
    watched.page.goto(address)
    glance = " ".join(watched.page.locator(".glance").inner_text().split())
    assert "main: WRONG in 8 of 32 cells; fix-branch: right in all 32 cells" in glance
    said = watched.page.locator(".answer").inner_text()
    assert "Outputs of main are WRONG at every exact boundary (2, 3, 4 and 8 chunks)" in said
    assert "Outputs of fix-branch are right in all 32 cells." in said
    assert "DO NOT TRUST" not in said


@pytest.mark.parametrize("scenario", ["repeat", "extended"])
def test_strip_has_every_cell_and_the_wrong_ones_red(
    watched: Watched, address: str, scenario: str
) -> None:
    watched.page.goto(address)
    part = watched.page.locator(f"section[aria-labelledby={scenario}] .strip")
    rows = {}
    for row in part.locator("tbody tr").all():
        name = (row.locator("th").inner_text(), row.locator(".commit").inner_text())
        rows[name] = [box.get_attribute("class") for box in row.locator("td[tabindex]").all()]
    assert len(rows) == 2 * 5
    for (arm, commit), boxes in rows.items():
        wrong = arm == "reload/unaligned" or (arm, commit) == ("reload/shipped", "main")
        at_boundary = "wrong" if wrong else "equal"
        assert boxes == ["equal", at_boundary, "equal", "equal"] * BOUNDARIES, (arm, commit)
    red = part.locator("td.wrong").first
    assert red.inner_text() == "\N{MULTIPLICATION SIGN}"
    red_value, green, blue = (
        int(part)
        for part in red.evaluate("e => getComputedStyle(e).backgroundColor.match(/[0-9]+/g)")[:3]
    )
    assert red_value > 2 * max(green, blue)
    assert "WRONG; " in (red.get_attribute("aria-label") or "")
    assert "nats" in (red.get_attribute("title") or "")


@pytest.mark.parametrize("scenario", ["repeat", "extended"])
def test_pictures_have_all_their_marks(watched: Watched, address: str, scenario: str) -> None:
    watched.page.goto(address)

    def marks(name: str) -> int:
        return watched.page.locator(f"[id='{name}'] use").count()

    right = {"cold": 16, "gpu_hit": 16, "reload-shipped": 16, "reload-aligned": 16}
    for arm, count in right.items():
        assert marks(f"ttft-{scenario}-{arm}") == count, arm
    assert marks(f"ttft-{scenario}-reload-unaligned") == CELLS - BOUNDARIES
    assert marks(f"ttft-{scenario}-reload-unaligned-wrong") == BOUNDARIES
    for metric in ("tokens", "bytes"):
        for arm in ("reload-aligned", "reload-unaligned"):
            assert marks(f"{metric}-{scenario}-{arm}") == CELLS
    assert marks("fix-cost") == 2 * BOUNDARIES
    for band in ("not-detectable", "two-identical-arms"):
        assert watched.page.locator(f"[id^='band-{band}-'] path").count() == 2 * BOUNDARIES
    for figure in watched.page.locator("figure svg").all():
        box = figure.bounding_box()
        assert box is not None and box["width"] > 300 and box["height"] > 100


def test_history_has_a_mark_for_each_commit(watched: Watched, address: str) -> None:
    watched.page.goto(f"{address}/history.html")
    for metric in ("wrong", "fix-cost", "ttft", "tokens", "bytes"):
        assert watched.page.locator(f"[id='history-{metric}'] use").count() == 2, metric
    text = " ".join(watched.page.locator("main").inner_text().split())
    assert text.count("A new level begins at fix-branch.") == 3
    assert text.count("No change point.") == 2


MEASURED = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
SHIPPED = {
    "all": {
        "repeat": ("255 WRONG", "128", "128", "128", "128", "no such mode"),
        "extended": ("255 WRONG", "128", "128", "0", "0", "no such mode"),
    },
    "align": {
        "repeat": ("0", "0", "0", "0", "0", "128"),
        "extended": ("0", "0", "0", "0", "0", "0"),
    },
}
"""Tokens that each release restores of a prompt of 2 chunks of 128, as seen by hand."""


@pytest.mark.parametrize("mode", ["all", "align"])
def test_releases_are_shown_by_name_with_the_wrong_ones_marked(
    watched: Watched, address: str, mode: str
) -> None:
    watched.page.goto(f"{address}/releases.html")
    table = watched.page.locator(f"table[data-mode={mode}] tbody")
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tr").all()]
    assert tuple(row[0] for row in rows) == MEASURED
    assert tuple(row[1] for row in rows) == SHIPPED[mode]["repeat"]
    assert tuple(row[4] for row in rows) == SHIPPED[mode]["extended"]
    reds = table.locator("td.wrong").all_inner_texts()
    assert reds and all("WRONG" in text for text in reds)


def test_releases_have_a_line_for_each_mode_and_scenario(watched: Watched, address: str) -> None:
    watched.page.goto(f"{address}/releases.html")

    def marks(name: str) -> int:
        return watched.page.locator(f"[id='{name}'] use").count()

    for metric in ("tokens", "bytes", "wrong"):
        for scenario in ("repeat", "extended"):
            assert marks(f"releases-{metric}-all-{scenario}") == 5, metric  # 0.32 has no mode all
            assert marks(f"releases-{metric}-align-{scenario}") == 6, metric
            assert marks(f"releases-{metric}-all-{scenario}-wrong-0") == 1  # 0.27.1
            assert marks(f"releases-{metric}-all-{scenario}-wrong-1") == 0
    assert marks("releases-tokens-all-extended-change-3") == 1  # 0.30.0 restores nothing any more
    assert marks("releases-tokens-align-repeat-change-5") == 1  # 0.32.0 restores something
    text = " ".join(watched.page.locator("main").inner_text().split())
    assert "align, repeat: a new level at 0.32.0." in text
    assert text.count("starts differ: no change point is looked for.") == 2  # TTFT and fix cost


def test_releases_are_a_branch_of_their_own_in_asvs_graphs(site: Path) -> None:
    branches = {
        one["branch"] for one in json.loads((site / "index.json").read_text())["graph_param_list"]
    }
    assert branches == {"main", "fix-branch", "releases"}


def test_keyboard_reaches_the_cells(watched: Watched, address: str) -> None:
    watched.page.goto(address)
    watched.page.keyboard.press("Tab")
    assert watched.page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        watched.page.keyboard.press("Tab")
        reached.add(watched.page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert any(label and label.startswith("repeat, 2 chunks 0: equal") for label in reached)


def test_narrow_screen_needs_no_sideways_scrolling(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740})
    for place in ("index.html", "history.html"):
        page.goto(f"{address}/{place}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()


def test_dark_is_dark(browser: Browser, address: str) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(address)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)")
        ink = page.evaluate(
            "getComputedStyle(document.querySelector('figure svg')).color.match(/[0-9]+/g)"
        )
        shades[scheme] = (sum(map(int, paper[:3])), sum(map(int, ink[:3])))
        page.close()
    assert shades["light"][0] > shades["light"][1] + 400
    assert shades["dark"][1] > shades["dark"][0] + 400


def test_asv_pages_work_offline_with_ours_first(watched: Watched, address: str) -> None:
    watched.page.goto(f"{address}/asv.html#/")
    tabs = watched.page.locator("nav li a")
    watched.page.locator(
        "#summarygrid-display .benchmark-group, #summarygrid-display a"
    ).first.wait_for()
    assert tabs.nth(2).inner_text() == "Fix cost"  # the first two are asv's own emblem
    watched.page.goto(f"{address}/asv.html#/reload.FixCost.track_fix_cost")
    watched.page.locator("#main-graph canvas").first.wait_for()
    tabs.get_by_text("Fix cost").click()
    watched.page.locator(".answer").wait_for()


def test_asv_list_does_not_hide_failures(watched: Watched, address: str) -> None:
    """The newest commit of branch main has no speed where its output is wrong."""
    watched.page.goto(f"{address}/asv.html#/summarylist?branch=main")
    watched.page.locator("#summarylist-body table td").first.wait_for()
    rows = watched.page.locator("#summarylist-body tr", has_text="track_ttft").filter(
        has_text="'reload/shipped', 'repeat', '0', 2"
    )
    assert "FAILED NOW" in rows.first.inner_text()
    assert rows.first.locator("td.value").inner_text() == ""


def test_no_address_of_a_content_network_is_left(site: Path) -> None:
    remote = ("cdnjs.", "cdn.jsdelivr", "code.jquery.com", "googleapis", "unpkg.")
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not [host for host in remote if host in text], path
    assert len(list((site / "vendor").rglob("LICENSE*"))) >= 5


def test_damaged_results_are_named_in_one_sentence(site: Path) -> None:
    folder = site.parents[1]
    damaged = next((folder / "results" / MACHINE).glob("*.run"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9])
    try:
        refused = fixcost(folder, "dashboard", "--build-only")
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"fixcost: asv publish failed: {damaged} is damaged (")
        assert refused.stderr.count("\n") == 1
    finally:
        damaged.write_bytes(whole)


def test_it_is_served_at_the_loopback_address_that_is_printed(site: Path) -> None:
    folder = site.parents[1]
    command = [sys.executable, "-c", "from harness.cli import main; main()", "dashboard"]
    environment = {**os.environ, "HOME": str(folder)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        line = next(line for line in served.stdout if line.startswith("Serving it at http://"))
        address = line.split()[3]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert b"Is the output right" in answer.read()
        served.terminate()


def test_runs_of_different_models_do_not_stop_the_others(site: Path) -> None:
    folder = site.parents[1]
    other = folder / "results" / "another"
    shutil.copytree(folder / "results" / MACHINE, other)
    try:
        for path in other.glob("*.json"):
            path.write_text(
                path.read_text().replace(f'"machine": "{MACHINE}"', '"machine": "another"')
            )
        changed = next(other.glob("59a16ce5-*.json"))
        identity = re.search(r'"reload.Run.track_identity": \[\[(\d+)', changed.read_text())
        assert identity is not None
        changed.write_text(changed.read_text().replace(identity[1], str(int(identity[1]) + 1)))
        built = fixcost(folder, "dashboard", "--build-only")
        assert built.returncode == 0, built.stderr
        text = (site / "index.html").read_text()
        assert "another: main and fix-branch were not measured with the same profile" in text
        assert "2.10x (2.08 to 2.13)" in text
    finally:
        shutil.rmtree(other)
        fixcost(folder, "dashboard", "--build-only")


def test_without_results_of_this_machine_there_is_no_picture(site: Path, tmp_path: Path) -> None:
    refused = fixcost(site.parents[1], "plot", str(tmp_path))
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
