"""The pictures of the dashboard, of `fixcost plot` and of the documentation, by matplotlib.

Each mark belongs to an SVG group whose id says what it shows, so that a test can count what was
really drawn. Colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart;
shapes differ as well.
"""

import io
import math
import re
from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.cells import Cell
from harness.comparison import Comparison, Row
from harness.estimate import Estimate, ratio
from harness.points import Point
from harness.site.history import Series
from harness.site.release_series import Metric
from harness.verdict import Verdict
from harness.vocabulary import Arm, Offset, Scenario

Points = Mapping[tuple[Arm, Cell], Point]

INK = "#1b1f24"
"""Text and axes; a page puts its own ink in its place."""
COLOURS = {
    Arm.COLD: "#777777",
    Arm.GPU_HIT: "#009e73",
    Arm.RELOAD_SHIPPED: "#cc79a7",
    Arm.RELOAD_ALIGNED: "#0072b2",
    Arm.RELOAD_UNALIGNED: "#d55e00",
}
MARKS = {
    Arm.COLD: "s",
    Arm.GPU_HIT: "^",
    Arm.RELOAD_SHIPPED: "D",
    Arm.RELOAD_ALIGNED: "o",
    Arm.RELOAD_UNALIGNED: "v",
}
BAND = "#e69f00"
_KINDS_OF_MARK = {
    "wrong": {"color": "#d55e00", "ms": 11, "mew": 2.5},
    "change": {"mfc": "none", "mec": BAND, "ms": 13, "mew": 2},
}
_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
OFFSETS = {
    Offset.ONE_BELOW: "\N{MINUS SIGN}1",
    Offset.EXACT: "",
    Offset.ONE_ABOVE: "+1",
    Offset.HALF_ABOVE: "+\N{VULGAR FRACTION ONE HALF}",
}


def ttft(points: Points, rows: Sequence[Row], scenario: Scenario) -> Figure:
    """TTFT of every arm over prompt length, wrong output hollow.

    A wrong answer has no speed of its own on record; its place is what the fix cost says that it
    would have taken.
    """
    with rc_context(_SETTINGS):
        figure, (above, axes) = _figure(8.4, 4.4, ratios=(1, 3))
        cells = _cells(points, scenario)
        for arm in COLOURS:
            kept = [(x, points.get((arm, cell))) for x, cell in enumerate(cells)]
            right = [(x, one.ttft) for x, one in kept if one is not None and one.ttft is not None]
            panel = above if arm is Arm.COLD else axes
            _marked(panel, right, arm, f"ttft-{scenario}-{_name(arm)}", scale=1e3)
            wrong = [
                (x, points[Arm.RELOAD_ALIGNED, one.cell].ttft, _fix_cost(rows, one.cell))
                for x, one in kept
                if one is not None and one.verdict is Verdict.WRONG
            ]
            hollow = [(x, a.value / f.value * 1e3) for x, a, f in wrong if a and f]
            if hollow:
                (line,) = axes.plot(*zip(*hollow, strict=True), MARKS[arm])
                line.set(mfc="none", mec=COLOURS[arm], ms=8, label=f"{arm}, WRONG output")
                line.set_gid(f"ttft-{scenario}-{_name(arm)}-wrong")
        axes.set_ylabel("time to the first token, ms")
        for panel in (above, axes):
            _from_zero(panel)
            _over_cells(panel, cells)
        above.tick_params(labelbottom=False)
        above.set_xlabel("")
        figure.legend(fontsize=8, ncols=3, loc="outside upper center")
    return figure


def moved(points: Points, scenario: Scenario) -> Figure:
    """Recomputed tokens and reloaded bytes of the two alignments over prompt length."""
    with rc_context(_SETTINGS):
        figure, both = _figure(8.4, 4.2, ratios=(1, 1))
        cells = _cells(points, scenario)
        metrics = {
            "tokens": ("recomputed\ntokens", 1.0),
            "bytes": ("reloaded\nKiB", 1 / 1024),
        }
        for axes, (metric, (label, scale)) in zip(both, metrics.items(), strict=True):
            for arm in (Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED):
                drawn = []
                for x, cell in enumerate(cells):
                    one = points.get((arm, cell))
                    if one is None:
                        continue
                    value = one.recomputed_tokens if metric == "tokens" else one.reload_bytes
                    if value is not None:
                        drawn.append((x, value * scale))
                (line,) = axes.plot(*zip(*drawn, strict=True), MARKS[arm], ls="-", lw=1)
                line.set(color=COLOURS[arm], label=str(arm))
                line.set_gid(f"{metric}-{scenario}-{_name(arm)}")
            axes.set_ylabel(label)
            _from_zero(axes)
            _over_cells(axes, cells)
        both[0].tick_params(labelbottom=False)
        both[0].set_xlabel("")
        both[0].legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def energy(points: Points, scenario: Scenario) -> Figure:
    """Joules of a request of every arm over prompt length, the cold arm in a panel of its own."""
    with rc_context(_SETTINGS):
        figure, (above, axes) = _figure(8.4, 4.0, ratios=(1, 3))
        cells = _cells(points, scenario)
        for arm in COLOURS:
            kept = [(x, points.get((arm, cell))) for x, cell in enumerate(cells)]
            drawn = [(x, one.energy) for x, one in kept if one is not None and one.energy]
            panel = above if arm is Arm.COLD else axes
            _marked(panel, drawn, arm, f"energy-{scenario}-{_name(arm)}")
        axes.set_ylabel("energy of a request, J")
        for panel in (above, axes):
            _from_zero(panel)
            _over_cells(panel, cells)
        above.tick_params(labelbottom=False)
        above.set_xlabel("")
        figure.legend(fontsize=8, ncols=3, loc="outside upper center")
    return figure


def fix_cost(comparison: Comparison) -> Figure:
    """The fix cost at each exact boundary, before the bands of what only noise can do.

    The wide one is what could not have been detected, the narrow one the interval of two identical
    arms.
    """
    rows = [row for row in comparison.rows if row.cell.is_exact_boundary]
    with rc_context(_SETTINGS):
        figure, (axes,) = _figure(8.4, 3.0)
        for x, row in enumerate(rows):
            unseen, same = min(row.detectable, 1.0), ratio(row.noise)
            _band(axes, x, 1 - unseen, 1 + unseen, 0.3, "not detectable")
            _band(axes, x, same.low, min(same.high, 2.0), 0.7, "two identical arms")
        axes.axhline(1.0, color=INK, lw=1, ls=":")
        drawn = [(x, row.fix_cost) for x, row in enumerate(rows)]
        _marked(axes, drawn, Arm.RELOAD_ALIGNED, "fix-cost", line=False, label="fix cost")
        axes.set_xticks(range(len(rows)))
        axes.set_xticklabels([f"{r.cell.chunks}\n{r.cell.scenario}" for r in rows])
        axes.set_xlabel("prompt length at an exact boundary, in chunks")
        axes.set_ylabel("TTFT, aligned\nover unaligned")
        _from_zero(axes)
        axes.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def history(series: Series) -> Figure:
    """One metric over commits, with intervals; change points as vertical lines."""
    with rc_context(_SETTINGS):
        figure, (axes,) = _figure(8.4, 2.6)
        drawn = [(x, one) for x, one in enumerate(series.values) if one is not None]
        _marked(axes, drawn, Arm.RELOAD_ALIGNED, f"history-{series.key}", label=series.title)
        for index, x in enumerate(series.changes):
            line = axes.axvline(x - 0.5, color=BAND, lw=2)
            line.set_gid(f"history-{series.key}-change-{index}")
        _over_commits(axes, series.labels, series.unit)
    return figure


def releases(metric: Metric) -> Figure:
    """One metric over releases, a curve for each mode and scenario, side by side where they meet.

    Crosses mark wrong output, rings a new level.
    """
    with rc_context(_SETTINGS):
        figure, (axes,) = _figure(8.4, 3.2)
        for index, curve in enumerate(metric.curves):
            arm = list(COLOURS)[index]
            shift = (index - (len(metric.curves) - 1) / 2) * 0.06
            drawn = [(x + shift, one) for x, one in enumerate(curve.values) if one is not None]
            name = f"releases-{metric.key}-{curve.mode}-{curve.scenario}"
            _marked(axes, drawn, arm, name, label=curve.name)
            for kind, places in (("wrong", curve.wrong), ("change", curve.changes)):
                known = [(x, one) for x in places if (one := curve.values[x]) is not None]
                for x, one in known:
                    (mark,) = axes.plot([x + shift], [one.value], "x" if kind == "wrong" else "o")
                    mark.set(**_KINDS_OF_MARK[kind])
                    mark.set_gid(f"{name}-{kind}-{x}")
        _over_commits(axes, metric.releases, metric.unit)
        figure.legend(fontsize=8, ncols=4, loc="outside upper center")
    return figure


def as_svg(figure: Figure, title: str) -> str:
    """The picture as an SVG element for a page, its ink that of the text around it.

    A colour `#0072b2` becomes `var(--c0072b2, #0072b2)`, which a style sheet can change.
    """
    drawn = io.StringIO()
    with rc_context({**_SETTINGS, "svg.hashsalt": title}):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    element = drawn.getvalue()[drawn.getvalue().index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(
        r"<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", r'<svg viewBox="\1">', element, count=1
    )
    element = element.replace(INK, "currentColor")
    for colour in (*COLOURS.values(), BAND):
        element = element.replace(colour, f"var(--c{colour[1:]}, {colour})")
    xlink = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return element.replace("<svg ", f'<svg {xlink} role="img" aria-label="{title}" ', 1)


def _band(axes: Axes, x: int, low: float, high: float, opacity: float, label: str) -> None:
    """One band behind a mark; only the first of its kind is in the legend."""
    shown = label if x == 0 else f"_{label}"
    (bar,) = axes.bar(x, high - low, 0.5, low, color=BAND, alpha=opacity, label=shown, lw=0)
    bar.set_gid(f"band-{label.replace(' ', '-')}-{x}")


def _figure(
    width: float, height: float, ratios: tuple[int, ...] = (1,)
) -> tuple[Figure, list[Axes]]:
    """A picture of so many inches, with axes of these heights one below the other."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(ratios), 1, squeeze=False, height_ratios=ratios)
    return figure, list(axes[:, 0])


def _from_zero(axes: Axes) -> None:
    """Let the axis begin at 0 and end above the highest mark."""
    axes.set_ylim(0, 1.05 * max(axes.get_ylim()[1], 1e-9))


def _marked(
    axes: Axes,
    drawn: Sequence[tuple[float, Estimate]],
    arm: Arm,
    name: str,
    *,
    scale: float = 1.0,
    line: bool = True,
    label: str | None = None,
) -> None:
    """Marks with their intervals; what has no interval is a mark alone."""
    if not drawn:
        return
    xs = [x for x, _ in drawn]
    values = [one.value * scale for _, one in drawn]
    known = [(one, math.isfinite(one.high) and math.isfinite(one.low)) for _, one in drawn]
    below = [(one.value - one.low) * scale if bounded else 0.0 for one, bounded in known]
    above = [(one.high - one.value) * scale if bounded else 0.0 for one, bounded in known]
    colour = COLOURS[arm]
    axes.errorbar(xs, values, [below, above], fmt="none", ecolor=colour, elinewidth=1, capsize=2)
    (marks,) = axes.plot(xs, values, MARKS[arm], ls="-" if line else "none", lw=1, ms=5)
    marks.set(color=colour, label=label or str(arm))
    marks.set_gid(name)


def _over_commits(axes: Axes, labels: Sequence[str], unit: str) -> None:
    axes.set_xticks(range(len(labels)))
    axes.set_xticklabels(labels)
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_ylabel(unit)
    _from_zero(axes)


def _over_cells(axes: Axes, cells: Sequence[Cell]) -> None:
    axes.set_xticks(range(len(cells)))
    axes.set_xticklabels([f"{cell.chunks}{OFFSETS[cell.offset]}" for cell in cells], fontsize=8)
    for x, cell in enumerate(cells):
        if cell.is_exact_boundary:
            axes.axvline(x, color=INK, lw=0.5, alpha=0.3)
    axes.set_xlabel("prompt length in chunks; vertical lines are exact boundaries")


def _cells(points: Points, scenario: Scenario) -> list[Cell]:
    return list(dict.fromkeys(cell for _, cell in points if cell.scenario is scenario))


def _fix_cost(rows: Sequence[Row], cell: Cell) -> Estimate | None:
    return next((row.fix_cost for row in rows if row.cell == cell), None)


def _name(arm: Arm) -> str:
    return arm.value.replace("/", "-")
