"""Run all cells of a profile in one engine and keep every sample.

The record grows in `<place>.partial`, a cell at a time, and becomes `place` when it is complete:
whatever is killed goes on where it stopped, and a finished record is replaced only by a finished
one.
"""

import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import filelock
import numpy as np

from harness import (
    bandwidth,
    cells,
    consumption,
    engine,
    numbers,
    places,
    progress,
    protocol,
    provenance,
    record,
    sampling,
    verdict,
)
from harness.cells import Cell
from harness.engine import Engine
from harness.errors import FixcostError
from harness.power import meters as power_meters
from harness.profiles import Profile
from harness.protocol import VoidSampleError
from harness.record import CellResult, Clocks, Header, Record, Sample
from harness.vocabulary import CacheMode

WARM_UP_LEAST, WARM_UP_MOST = 8, 40
"""Samples thrown away before the first cell, of the first and the last cell in turn."""
SETTLED = 0.1
"""Warm-up ends when times have stopped falling by more than this share."""
VOID_MOST = 5
"""Void samples of a cell, beyond which it is given up."""
_SPARE = 4096
"""How far from a void sample's index its replacement is, a multiple of `sampling.BLOCK`."""
_WARM_UP_INDEX = 1 << 20
"""Of its first sample: prompts of its own."""
_CLOCK_INDEX, _CLOCKED = 3 << 20, 5
"""The same for the requests that the clocks are compared by, and how many they are."""


def place_of(profile: Profile, version: str) -> Path:
    """Where a sweep goes by default: a place for each machine, commit, profile, mode and model."""
    own = "" if profile.cache_mode is CacheMode.ALL else f"-{profile.cache_mode}"
    own += "" if profile.model is None else f"-{Path(profile.model).name}"
    return places.SWEEPS / platform.node() / version / f"{profile.name}{own}"


def run(
    profile: Profile, grid: Sequence[Cell], place: Path, *, seed: int, commit: str | None = None
) -> Record:
    """Measure every cell of `grid` that `<place>.partial` does not hold yet.

    Args:
        profile: the model, its engine and the number of samples per cell.
        grid: the cells, in the order in which they are measured.
        place: the folder of the finished record.
        seed: from which every prompt and every order follows.
        commit: the subject's commit whose Python lies over the installed vLLM, or None.

    Raises:
        FixcostError: another sweep writes there, the engine cannot be started, a prompt does not
            fit, the disk is full, or the negative control failed, which leaves the record in
            `<place>.partial`. Finished cells are kept.
    """
    verdict.check_boundaries(grid)
    if not place.name:
        raise FixcostError(f"{place} cannot be a record: name a folder in it.")
    partial = _partial(place)
    with _alone(place), progress.track(len(grid), f"Sweep of {profile.name}") as step:
        meters = power_meters.find(profile.gpus)
        step("starting the engine", advance=0)
        with engine.start(profile) as running:
            extra = protocol.extra_tokens(running.chunk, profile.output_tokens)
            cells.check_fit(grid, running.chunk, running.context, extra)
            step("warming up", advance=0)
            warm_up = _warm_up(running, grid, seed)
            header = _header(profile, grid, running, seed, commit, warm_up)
            header = replace(
                header,
                meters=meters.described,
                no_energy=meters.reason,
                gpus=list(meters.gpus),
                bandwidth=bandwidth.measure("cuda") if profile.gpus else None,
                clocks=_clocks(running, grid[0], seed),
            )
            header = _resume_or_begin(partial, header)
            for cell in grid:
                step(cell.label, advance=0)
                if record.read_cell(partial, cell) is None:
                    taken = _measure(running, cell, header)
                    states, seconds = meters.states(), profile.energy_seconds
                    windows, without = consumption.measure(running, meters, cell, seed, seconds)
                    taken = replace(taken, gpus=states, windows=windows, no_energy=without)
                    record.write_cell(partial, taken)
                step(cell.label)
        oracle = verdict.derive(record.read(partial).cells.values(), header.provenance)
        record.write_header(partial, replace(header, oracle=oracle, finished=provenance.now()))
        finished = record.read(partial)
        verdict.check_control(finished)
        _publish(partial, place)
    return finished


def _partial(place: Path) -> Path:
    return place.with_name(f"{place.name}.partial")


def _warm_up(running: Engine, grid: Sequence[Cell], seed: int) -> tuple[int, bool]:
    """Take samples until times have settled; how many, and whether they have."""
    seconds: list[float] = []
    while len(seconds) < WARM_UP_MOST:
        cell = (grid[0], grid[-1])[len(seconds) % 2]
        taken = protocol.take(running, cell, seed, _WARM_UP_INDEX + len(seconds))
        seconds.append(sum(arm.ttft for arm in taken.arms.values()))
        if len(seconds) >= WARM_UP_LEAST and len(seconds) % 2 == 0 and has_settled(seconds):
            return len(seconds), True
    return len(seconds), False


def has_settled(seconds: Sequence[float]) -> bool:
    """Whether the last four of at least eight times are no faster than the four before them."""
    before, after = np.median(seconds[-8:-4]), np.median(seconds[-4:])
    return bool(after > before * (1 - SETTLED))


def _clocks(running: Engine, cell: Cell, seed: int) -> Clocks:
    """Requests of one token by vLLM's metric, by the host's clock and by CUDA events."""
    served = []
    for index in range(_CLOCKED):
        drawn = protocol.draw(running, cell, seed, _CLOCK_INDEX + index)
        running.evict(host=True)
        served.append(running.serve(drawn.prompt, tokens=1))
    events = [one.device_time for one in served if one.device_time is not None]
    return Clocks(
        ttft=median(one.ttft for one in served),
        host=median(one.host_time for one in served),
        device=median(events) if events else None,
    )


def _measure(running: Engine, cell: Cell, header: Header) -> CellResult:
    void: list[str] = []

    def take(index: int) -> Sample:
        while True:
            try:
                return protocol.take(running, cell, header.seed, index + _SPARE * len(void))
            except VoidSampleError as error:
                void.append(str(error))
                if len(void) > VOID_MOST:
                    raise FixcostError(f"Samples of [{cell.label}] are void: {error}.") from None

    rule = sampling.Rule(header.samples, header.half_width, header.cell_seconds)
    samples, ended = sampling.collect(rule, take, numbers.fix_cost)
    return CellResult(cell, cell.prompt_length(running.chunk), samples, ended, void=void)


def _header(
    profile: Profile,
    grid: Sequence[Cell],
    running: Engine,
    seed: int,
    commit: str | None,
    warm_up: tuple[int, bool],
) -> Header:
    return Header(
        seed=seed,
        samples=profile.samples,
        half_width=profile.half_width,
        cell_seconds=profile.cell_seconds,
        warm_up=warm_up[0],
        settled=warm_up[1],
        output_tokens=profile.output_tokens,
        chunk=running.chunk,
        shipped_alignment=running.shipped_alignment,
        groups=running.groups,
        pinned=running.pinned,
        cells=list(grid),
        provenance=provenance.collect(profile, commit),
    )


def _resume_or_begin(partial: Path, header: Header) -> Header:
    """The header to go on with: the one on disk if it is of the same sweep, else the new one."""
    found = record.read_header(partial)
    if found is not None and _identity(found) == _identity(header) and found.finished is None:
        return found
    record.clear(partial)
    record.write_header(partial, header)
    return header


def _identity(header: Header) -> Header:
    """All of a header but when, under which load and on which cores it was begun or finished."""
    where = replace(header.provenance, started="", load_average=0.0, cores=(), threads=0)
    return replace(
        header,
        provenance=where,
        warm_up=0,
        settled=True,
        oracle=None,
        finished=None,
        meters=[replace(meter, period=0.0) for meter in header.meters],
        gpus=[replace(gpu, others=0) for gpu in header.gpus],
        bandwidth=None,
        clocks=None,
    )


def _publish(partial: Path, place: Path) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
            if place.exists():
                place.rename(Path(scratch, "old"))
            partial.rename(place)
    except OSError as error:
        raise FixcostError(
            f"Cannot move {partial} to {place}: {error.strerror or error}."
        ) from error


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the lock on `place` inside the block; a killed holder leaves it free."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        held = filelock.FileLock(place.with_name(f".{place.name}.lock")).acquire(blocking=False)
    except filelock.Timeout:
        raise FixcostError(
            f"Another sweep is writing {place}: wait for it or choose another place."
        ) from None
    except OSError as error:
        raise FixcostError(f"Cannot write {place}: {error.strerror or error}.") from error
    with held:
        for folder in (place, _partial(place)):
            if folder.exists() and record.read_header(folder) is None:
                raise FixcostError(f"{folder} exists and is not a record: choose another place.")
        yield
