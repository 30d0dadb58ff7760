"""The same in Mamba cache mode `align`, which every vLLM has that can be measured."""

from pathlib import Path

from benchmarks import reload
from benchmarks.common import SWEEP_SECONDS, Swept, sweep_once
from harness.vocabulary import CacheMode


class _Aligned(Swept):
    """asv shares what a `setup_cache` makes by the place where it is written: here another."""

    def setup_cache(self) -> Path:
        return sweep_once(CacheMode.ALIGN)

    setup_cache.timeout = SWEEP_SECONDS  # type: ignore[attr-defined]


class Reload(_Aligned, reload.Reload):
    """Every metric of every arm; where the output is wrong, times fail and the rest remains."""


class FixCost(_Aligned, reload.FixCost):
    """What the alignment costs, paired within each sample, whatever the code under test does."""


class Start(_Aligned, reload.Start):
    """One sample a start of the engine."""


class Run(_Aligned, reload.Run):
    """The sweep as a whole."""
