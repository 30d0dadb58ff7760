"""The page of the releases: what each of them does, and where that changed."""

from dataclasses import dataclass
from pathlib import Path

from harness import release_history, release_tables
from harness.site import pictures, release_series
from harness.site.release_series import Metric
from harness.vocabulary import CacheMode


@dataclass(frozen=True)
class Shown:
    """All that is shown of a machine."""

    tables: dict[CacheMode, dict[str, list[str]]]
    metrics: list[tuple[Metric, str]]
    """Each with its picture."""


def shown(conf_path: Path) -> dict[str, Shown]:
    """Each machine that has measured a release.

    Raises:
        FixcostError: stored results are damaged.
    """
    return {
        machine: Shown(
            tables={mode: release_tables.rows(lines, mode) for mode in CacheMode},
            metrics=[
                (one, pictures.as_svg(pictures.releases(one), f"{one.title}, {machine}"))
                for one in release_series.metrics(lines)
            ],
        )
        for machine, lines in release_history.of_all(conf_path).items()
    }
