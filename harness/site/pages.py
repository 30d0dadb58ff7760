"""Our own pages: what each machine says of the fix, and the history of each metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jinja2
import msgspec

from harness import (
    __version__,
    asv_names,
    comparison,
    conclusion,
    energy_tables,
    estimate,
    git,
    points,
    release_commits,
    release_tables,
    runs,
    subject,
)
from harness.asv_names import Measured
from harness.cells import Cell
from harness.comparison import Comparison
from harness.estimate import Estimate
from harness.files import write_atomically
from harness.points import Benchmarks, Point
from harness.runs import Run
from harness.site import history, pictures, release_series, releases_page
from harness.subject import Subject
from harness.verdict import Verdict
from harness.vocabulary import REPORTED_ARMS, Scenario
from harness.wording import bound, interval, percent, times

_HERE = Path(__file__).parent
_KINDS = {
    Verdict.EQUAL: ("equal", "=", "equal"),
    Verdict.WRONG: ("wrong", "\N{MULTIPLICATION SIGN}", "WRONG"),
    Verdict.CANNOT_TELL: ("unsure", "?", "cannot tell"),
    None: ("failed", "!", "failed"),
}
_ABSENT = ("absent", "\N{EN DASH}", "not run")


@dataclass(frozen=True)
class Box:
    """One cell of the strip."""

    kind: str
    """equal, wrong, unsure, failed or absent."""
    symbol: str
    says: str
    """The same in words, with tokens and drift."""


@dataclass(frozen=True)
class Strip:
    """One row of the strip: an arm of a commit over the cells of a scenario."""

    arm: str
    commit: str
    boxes: list[Box]


@dataclass(frozen=True)
class Part:
    """All that is shown of a scenario."""

    scenario: str
    headings: list[str]
    strips: list[Strip]
    ttft: str
    moved: str
    energy: str
    """"" without a meter."""


@dataclass(frozen=True)
class FixPage:
    """One machine, one pair of commits."""

    machine: str
    described: dict[str, str]
    comparison: Comparison
    glance: dict[str, str]
    """The shortest answers: to "output", "cost" and "elsewhere"."""
    summary: str
    parts: list[Part]
    fix_cost: str
    runs: dict[str, Run | None]

    @property
    def file(self) -> str:
        """Its name on the site."""
        return f"fix-cost-{self.machine}.html"


def write(conf_path: Path, html: Path) -> None:
    """Write the first page, a page for each machine, and the history into `html`.

    Raises:
        FixcostError: stored results are damaged.
    """
    chosen = subject.current(conf_path)
    machines = asv_names.machines(conf_path)
    found = [fix_page(conf_path, chosen, name, machines[name]) for name in machines]
    shown = [one for one in found if isinstance(one, FixPage)]
    silent = {name: one for name, one in zip(machines, found, strict=True) if isinstance(one, str)}
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"percent": percent, "interval": interval}
    common = {
        "asv_page": "asv.html",
        "version": __version__,
        "now": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "pages": shown,
        "silent": silent,
    }
    page = templates.get_template("fix_cost.html")
    for one in shown:
        write_atomically(html / one.file, page.render(page=one, **common).encode())
    first = page.render(page=shown[0] if shown else None, **common)
    write_atomically(html / "index.html", first.encode())
    _write_history(conf_path, chosen, html, templates.get_template("history.html"), common)
    _write_releases(conf_path, html, templates.get_template("releases.html"), common)
    write_atomically(html / "fixcost.css", (_HERE / "templates" / "fixcost.css").read_bytes())
    data = {one.machine: one.comparison for one in shown}
    write_atomically(html / "fix-cost.json", msgspec.json.encode(data))


def fix_page(
    conf_path: Path, chosen: Subject, machine: str, described: dict[str, str]
) -> FixPage | str:
    """What a machine says of the two branches, or why it says nothing."""
    try:
        compared = comparison.of_machine(conf_path, machine, chosen.base, chosen.fix)
    except (comparison.NothingStoredError, comparison.IncomparableError) as error:
        return str(error)
    commits = {name: git.commit_of(chosen.repository, name) for name in (chosen.base, chosen.fix)}
    stored = {n: asv_names.stored(conf_path, machine, c or "") for n, c in commits.items()}
    by_commit = {name: points.of(kept) for name, kept in stored.items()}
    scenarios = dict.fromkeys(row.cell.scenario for row in compared.rows)
    cost = pictures.fix_cost(compared)
    return FixPage(
        machine=machine,
        described=described,
        comparison=compared,
        glance=_glance(compared),
        summary=conclusion.of_comparison(compared),
        parts=[_part(compared, scenario, by_commit) for scenario in scenarios],
        fix_cost=pictures.as_svg(cost, "Fix cost at exact boundaries"),
        runs={n: runs.read(conf_path, machine, c or "") for n, c in commits.items()},
    )


def _glance(compared: Comparison) -> dict[str, str]:
    total = len(compared.rows)
    outputs = []
    for name, verdicts in (
        (compared.base, [row.base.verdict for row in compared.rows]),
        (compared.fix, [row.fix.verdict for row in compared.rows]),
    ):
        wrong = verdicts.count(Verdict.WRONG)
        unsure = verdicts.count(Verdict.CANNOT_TELL)
        said = f"WRONG in {wrong} of {total} cells" if wrong else f"right in all {total} cells"
        outputs.append(f"{name}: {'cannot tell' if unsure else said}")
    at = [row.fix_costs for row in compared.rows if row.cell.is_exact_boundary]
    elsewhere = [row.fix_costs for row in compared.rows if not row.cell.is_exact_boundary]
    mark = {"Trust": conclusion.mark_of(compared.faulty)} if compared.faulty else {}
    return mark | {
        "Output": "; ".join(outputs),
        "Cost at exact boundaries": times(estimate.pooled(at)) if at else "not measured",
        "Cost elsewhere": _elsewhere(estimate.pooled(elsewhere)) if elsewhere else "not measured",
        "Cost in energy": energy_tables.in_short(compared),
    }


def _elsewhere(cost: Estimate) -> str:
    return f"none seen above {bound(cost)}" if cost.includes(1.0) else times(cost)


def _part(
    compared: Comparison, scenario: Scenario, by_commit: Mapping[str, pictures.Points]
) -> Part:
    cells = list(
        dict.fromkeys(
            cell for kept in by_commit.values() for _, cell in kept if cell.scenario is scenario
        )
    )
    kept = by_commit[compared.fix]
    return Part(
        scenario=scenario,
        headings=[f"{cell.chunks}{pictures.OFFSETS[cell.offset]}" for cell in cells],
        strips=[
            Strip(arm, name, [_box(found.get((arm, cell)), cell) for cell in cells])
            for arm in REPORTED_ARMS
            for name, found in by_commit.items()
        ],
        ttft=pictures.as_svg(
            pictures.ttft(kept, compared.rows, scenario), f"Time to the first token, {scenario}"
        ),
        moved=pictures.as_svg(
            pictures.moved(kept, scenario), f"Recomputed tokens and reloaded bytes, {scenario}"
        ),
        energy=pictures.as_svg(pictures.energy(kept, scenario), f"Energy of a request, {scenario}")
        if any(kept[arm, cell].energy for arm, cell in kept if cell.scenario is scenario)
        else "",
    )


def _box(point: Point | None, cell: Cell) -> Box:
    kind, symbol, word = _KINDS[point.verdict] if point else _ABSENT
    says = f"{cell.label}: {word}"
    if point is not None and point.wrong_tokens is not None and point.logprob_drift is not None:
        says += f"; {point.wrong_tokens:.0f} tokens differ, drift {point.logprob_drift:.2g} nats"
    return Box(kind, symbol, says)


def _write_history(
    conf_path: Path,
    chosen: Subject,
    html: Path,
    template: jinja2.Template,
    common: Mapping[str, object],
) -> None:
    shown = {}
    elsewhere = set(release_commits.all_of(chosen.repository).values())
    for machine in asv_names.machines(conf_path):
        measured = asv_names.measured(conf_path, machine)
        commits = _labelled(chosen, [one for one in measured if one.commit not in elsewhere])
        stored: dict[str, Benchmarks] = {
            label: asv_names.stored(conf_path, machine, commit) for label, commit in commits.items()
        }
        shown[machine] = [
            (one, pictures.as_svg(pictures.history(one), f"{one.title}, {machine}"))
            for one in history.series(stored)
        ]
    write_atomically(html / "history.html", template.render(shown=shown, **common).encode())


def _write_releases(
    conf_path: Path, html: Path, template: jinja2.Template, common: Mapping[str, object]
) -> None:
    page = template.render(
        shown=releases_page.shown(conf_path),
        scenarios=list(Scenario),
        legend=release_tables.LEGEND,
        timed=release_series.TIMED,
        **common,
    )
    write_atomically(html / "releases.html", page.encode())


def _labelled(chosen: Subject, commits: Sequence[Measured]) -> dict[str, str]:
    """Commits by what a reader knows them as: a branch of the subject, a tag, else the hash."""
    names = {git.commit_of(chosen.repository, name): name for name in (chosen.fix, chosen.base)}
    labels = {}
    for one in commits:
        known = git.commit_of(chosen.repository, one.commit) is not None
        tags = git.lines(chosen.repository, "tag", "--points-at", one.commit) if known else []
        labels[names.get(one.commit) or next(iter(tags), one.commit[:8])] = one.commit
    return labels
