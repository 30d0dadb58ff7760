"""What people do now: an engine for each cell and alignment, and two averages.

Upstream's regression test starts one engine with and one without; a comparison by two runs of
`vllm bench` does the same with more requests. Here each start is a process of its own, which
measures one alignment at one cell.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness import engine, profiles, protocol
from harness.vocabulary import Alignment
from validation.delays import CELL

STARTS = 3
REQUESTS = 30
WARM_UP = 8


@dataclass(frozen=True)
class Practice:
    """Starts of either alignment, in turn."""

    medians: dict[Alignment, list[float]]
    """Seconds to the first token, one median a start."""
    seconds_a_start: float

    @property
    def spread(self) -> float:
        """Deviation of the log medians between starts of the same alignment."""
        logs = [np.log(found) - np.mean(np.log(found)) for found in self.medians.values()]
        return float(np.sqrt(sum((part**2).sum() for part in logs) / sum(len(p) - 1 for p in logs)))

    def seconds_to(self, half_width: float) -> float:
        """How long it takes until the ratio of the two is known to within `half_width`."""
        starts = 2
        while self._half_width(starts) > np.log1p(half_width):
            starts += 1
        return 2 * starts * self.seconds_a_start

    def _half_width(self, starts: int) -> float:
        quantile = stats.t.ppf(0.975, 2 * (starts - 1))
        return float(quantile * self.spread * np.sqrt(2 / starts))


def measure() -> Practice:
    """Start engines in turn; takes some ten seconds a start."""
    medians: dict[Alignment, list[float]] = {Alignment.ALIGNED: [], Alignment.UNALIGNED: []}
    began = time.monotonic()
    for start in range(STARTS):
        for alignment, found in medians.items():
            command = [sys.executable, "-m", "validation.practice", alignment, str(start)]
            finished = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(json.loads(finished.stdout.splitlines()[-1]))
    return Practice(medians, (time.monotonic() - began) / (2 * STARTS))


def one_start(alignment: Alignment, seed: int) -> float:
    """The median time to the first token of one engine under one alignment."""
    times = []
    with engine.start(profiles.PROFILES["cpu-tiny"]) as running, running.alignment(alignment):
        for index in range(WARM_UP + REQUESTS):
            drawn = protocol.draw(running, CELL, seed, index)
            protocol.serve_before(running, CELL, drawn)
            running.evict()
            times.append(running.serve(drawn.prompt, tokens=1).ttft)
    return float(np.median(times[WARM_UP:]))


if __name__ == "__main__":
    print(json.dumps(one_start(Alignment(sys.argv[1]), int(sys.argv[2]))))
