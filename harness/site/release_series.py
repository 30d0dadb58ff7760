"""What became of each metric from release to release, in every cache mode and scenario."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness import estimate
from harness.estimate import Estimate
from harness.release_history import Line
from harness.site import history
from harness.vocabulary import CacheMode, Scenario


@dataclass(frozen=True)
class Curve:
    """One metric of one mode and scenario over releases."""

    mode: CacheMode
    scenario: Scenario
    values: list[Estimate | None]
    """None where a release has none."""
    wrong: list[int]
    """Releases, by their place, with wrong output."""
    changes: list[int]
    """Releases at which a new level begins."""

    @property
    def name(self) -> str:
        """ "all, repeat" """
        return f"{self.mode}, {self.scenario}"


@dataclass(frozen=True)
class Metric:
    """One picture."""

    key: str
    title: str
    unit: str
    releases: list[str]
    curves: list[Curve]

    @property
    def said(self) -> list[str]:
        """A sentence for each curve that changes."""
        return [
            f"{one.name}: a new level at {', '.join(self.releases[x] for x in one.changes)}."
            for one in self.curves
            if one.changes
        ]


_Value = Callable[[Line], Estimate | None]
_METRICS: dict[tuple[str, str, str], _Value] = {
    ("tokens", "recomputed tokens at exact boundaries, as shipped", "tokens"): (
        lambda line: line.recomputed_tokens
    ),
    ("bytes", "reloaded at exact boundaries, as shipped", "KiB"): (
        lambda line: _scaled(line.reload_bytes, 1 / 1024)
    ),
    ("wrong", "cells with wrong output, as shipped", "cells"): (
        lambda line: estimate.exactly(len(line.wrong)) if line.boundaries else None
    ),
    ("fix-cost", "fix cost at exact boundaries, aligned over unaligned", "ratio"): (
        lambda line: None if line.blind else line.fix_cost
    ),
    ("ttft", "time to the first token at exact boundaries, as shipped", "ms"): (
        lambda line: _scaled(line.ttft, 1e3)
    ),
}
TIMED = ("fix-cost", "ttft")
"""Made of times. Releases are different starts of an engine, and starts differ by more than the
intervals within one: no change point is made of these."""


def metrics(lines: Sequence[Line]) -> list[Metric]:
    """Every metric over the releases, with a curve for each mode and scenario."""
    names = list(dict.fromkeys(line.release for line in lines))
    return [
        Metric(
            key=key,
            title=title,
            unit=unit,
            releases=names,
            curves=[
                _curve([line for line in lines if (line.mode, line.scenario) == pair], value, key)
                for pair in dict.fromkeys((line.mode, line.scenario) for line in lines)
            ],
        )
        for (key, title, unit), value in _METRICS.items()
    ]


def _curve(lines: Sequence[Line], value: _Value, key: str) -> Curve:
    values = [value(line) for line in lines]
    return Curve(
        mode=lines[0].mode,
        scenario=lines[0].scenario,
        values=values,
        wrong=[x for x, line in enumerate(lines) if line.wrong],
        changes=[] if key in TIMED else history.changes(values),
    )


def _scaled(found: Estimate | None, scale: float) -> Estimate | None:
    if found is None:
        return None
    return Estimate(found.value * scale, found.low * scale, found.high * scale, found.count)
