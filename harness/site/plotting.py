"""The dashboard's pictures as files."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from harness import asv_names, comparison, git, points, release_history, subject
from harness.files import write_atomically
from harness.release_history import Line
from harness.site import pictures, release_series

DOTS_PER_INCH = 150


def write(conf_path: Path, folder: Path) -> Iterator[Path]:
    """Write every picture of the subject's two branches on this machine, as SVG and PNG.

    Raises:
        FixcostError: nothing was measured here, what is stored is damaged, or `folder` cannot be
            written.
    """
    chosen = subject.current(conf_path)
    compared = comparison.load(conf_path, chosen.base, chosen.fix)
    commit = git.commit_of(chosen.repository, chosen.fix) or ""
    machine = asv_names.registered_machine() or ""
    kept = points.of(asv_names.stored(conf_path, machine, commit))
    drawn = {"fix-cost": pictures.fix_cost(compared)}
    for scenario in dict.fromkeys(row.cell.scenario for row in compared.rows):
        drawn[f"ttft-{scenario}"] = pictures.ttft(kept, compared.rows, scenario)
        drawn[f"moved-{scenario}"] = pictures.moved(kept, scenario)
        if any(one.energy for (_, cell), one in kept.items() if cell.scenario is scenario):
            drawn[f"energy-{scenario}"] = pictures.energy(kept, scenario)
    for name, figure in drawn.items():
        yield from _written(figure, folder / name)


def write_releases(conf_path: Path, folder: Path) -> Iterator[Path]:
    """Write every picture of the releases, for each machine that has measured some.

    Raises:
        FixcostError: what is stored is damaged, or `folder` cannot be written.
    """
    for machine, lines in release_history.of_all(conf_path).items():
        for metric in release_series.metrics(lines):
            figure = pictures.releases(metric)
            yield from _written(figure, folder / f"releases-{metric.key}-{machine}")


def write_release_picture(lines: Sequence[Line], key: str, path: Path) -> None:
    """Write the picture of one metric of the releases (`release_series.Metric.key`) as SVG."""
    (metric,) = [one for one in release_series.metrics(lines) if one.key == key]
    write_atomically(path, _encoded(pictures.releases(metric), "svg"))


def _written(figure: Figure, stem: Path) -> Iterator[Path]:
    for form in ("svg", "png"):
        path = stem.with_name(f"{stem.name}.{form}")
        write_atomically(path, _encoded(figure, form))
        yield path


def _encoded(figure: Figure, form: str) -> bytes:
    encoded = io.BytesIO()
    figure.savefig(encoded, format=form, dpi=DOTS_PER_INCH, facecolor="white")
    return encoded.getvalue()
