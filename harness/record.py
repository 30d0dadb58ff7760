"""The record of a sweep: every raw sample, and where it came from, one file a cell on disk.

A record is a folder. `sweep.json` says what is swept and where; `cells/<key>.json` holds the
samples of one finished cell. Each file is written whole or not at all, so that a killed sweep
leaves a record of the cells that it finished.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.cells import Cell
from harness.errors import FixcostError
from harness.files import write_atomically
from harness.vocabulary import Arm, Ended, Scenario

SCHEMA = 2
HEADER = "sweep.json"

Decoded = TypeVar("Decoded")


@dataclass(frozen=True)
class ArmResult:
    """What one arm of one sample gave. Times in seconds, sizes in bytes or tokens."""

    ttft: float
    cached_tokens: int
    recomputed_tokens: int
    reload_bytes: int
    reload_time: float
    wrong_tokens: int
    """Output tokens that differ from the cold arm's."""
    first_wrong: int | None
    """Position of the first of them, counted from 0; None if all are equal."""
    logprob_drift: float
    """Largest absolute difference of the first token's log-probabilities from the cold arm's;
    the largest float32 where one is not a number."""


@dataclass(frozen=True)
class Conditions:
    """What the machine did beside a sample, while it was taken."""

    load_average: float
    """Of the last minute, in runnable tasks."""
    frequency: float | None
    """Clock of the processor in MHz, mean over the cores; None where it cannot be read."""
    background: float
    """Cores kept busy by other programs."""
    steal: float
    """Cores withheld by the hypervisor."""
    burst: bool
    """Whether one of the two was so high that the sample is marked."""


@dataclass(frozen=True)
class Sample:
    """One fresh random prompt taken through all arms of its cell."""

    index: int
    order: tuple[Arm, ...]
    """The reload arms in the order in which they were served."""
    conditions: Conditions
    arms: dict[Arm, ArmResult]


@dataclass(frozen=True)
class GpuState:
    """What the driver said of a GPU at one moment; None where it does not say."""

    temperature: float | None
    """Degrees Celsius."""
    clock: int | None
    """Of the multiprocessors, in MHz."""
    memory_clock: int | None
    """MHz."""
    watts: float | None
    """Drawn at this moment."""
    throttled: tuple[str, ...]
    """Why the clock was held down."""
    link_generation: int | None
    """Of PCIe; it falls while the GPU idles."""
    replays: int | None
    """Packets that PCIe had to send again so far."""
    ecc_errors: int | None
    """Bits of memory that could not be corrected, since the driver was loaded."""


@dataclass(frozen=True)
class Energy:
    """Joules of one meter, and how far off they may be."""

    joules: float
    error: float
    """At most so many joules to either side."""


@dataclass(frozen=True)
class Window:
    """A stretch of time in which one arm was served again and again, or nothing was."""

    arm: Arm | None
    """None: the engine idled."""
    turn: int
    """Every arm has one window in each turn."""
    requests: int
    seconds: float
    energy: dict[str, Energy]
    """By the names of the meters."""
    gpus: list[GpuState]
    """At its end."""


@dataclass(frozen=True)
class CellResult:
    """All samples of one cell."""

    cell: Cell
    prompt_length: int
    samples: list[Sample]
    ended: Ended
    """What ended the sampling."""
    windows: list[Window] = field(default_factory=list)
    """Of energy, in the order in which they were taken; empty without a meter."""
    no_energy: dict[Arm, str] = field(default_factory=dict)
    """Why an arm has none here, although there is a meter."""
    gpus: list[GpuState] = field(default_factory=list)
    """After the last sample."""
    void: list[str] = field(default_factory=list)
    """Of each sample that was thrown away because it did not measure what it should: why."""


@dataclass(frozen=True)
class Oracle:
    """How wrong output is told from right in this run, derived from the run (`verdict.derive`).

    Drifts are in nats.
    """

    gpu_hits: int
    """Samples of the arm that never leaves the device."""
    floor: float
    """Their drift, at its 90th percentile."""
    threshold: float
    """Output that drifts further is wrong."""
    noise: float
    """The largest drift of all correct arms (`gpu_hit`, and the cells off the boundaries) that
    stays below the threshold."""
    weakest: float
    """The smallest drift of the known corruption."""
    tokens_count: bool
    """Whether a different token is wrong too: at low precision rounding alone flips tokens."""
    blind: str
    """Why no verdict can be given, or "" if it can."""
    blind_scenarios: list[Scenario] = field(default_factory=list)
    """Those in which the code under test leaves nothing for the known corruption to show."""


@dataclass(frozen=True)
class Group:
    """A KV cache group of the engine: what it holds and moves."""

    recurrent: bool
    """True for Mamba state, False for attention."""
    layers: int
    tokens_per_block: int
    page_bytes: int
    """Bytes of one block of one layer, without padding."""


@dataclass(frozen=True)
class Meter:
    """An energy counter that was read."""

    name: str
    """What it measures: "GPU 0", "package-0", "package-0 dram"."""
    period: float
    """Seconds between two of its steps, in the median."""


@dataclass(frozen=True)
class Gpu:
    """A GPU in use, as the driver described it when the sweep began; None: it does not say."""

    name: str
    link_generation: int | None
    """Of PCIe, the highest that GPU and slot can do."""
    link_width: int | None
    """Lanes in use."""
    most_link_width: int | None
    ecc: bool | None
    """Whether memory errors are corrected."""
    sliced: bool
    """Whether it is divided among several users (MIG)."""
    others: int
    """Programs that computed on it before we did."""


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second of a large copy from host memory to the device, taken in the same run."""

    pinned: float
    pageable: float


@dataclass(frozen=True)
class Clocks:
    """The same requests of one output token by several clocks, medians in seconds."""

    ttft: float
    """By vLLM's own metric."""
    host: float
    """From the call to its return."""
    device: float | None
    """Between two CUDA events around it; None without a GPU."""


@dataclass(frozen=True)
class Provenance:
    """Where the figures come from; a record without it cannot be written."""

    fixcost: str
    vllm: str
    torch: str
    python: str
    commit: str | None
    """The commit of the subject that was overlaid; None for the installed vLLM."""
    profile: str
    model: str
    model_digest: str | None
    """Of a local checkpoint; None for one from a hub."""
    dtype: str
    state_dtype: str
    cache_mode: str
    blocks_per_chunk: int
    host: str
    cpu: str
    cores: tuple[int, ...]
    """The cores that the process may run on."""
    threads: int
    """Threads that torch computes with."""
    gpus: tuple[str, ...]
    started: str
    """ISO 8601, UTC."""
    load_average: float
    ranks: int = 1
    """GPUs that the model is split over (tensor parallel); bytes are those of all together."""


@dataclass(frozen=True)
class Header:
    """What is swept and where."""

    seed: int
    """From which every prompt and every order follows."""
    samples: int
    """Per cell, at least."""
    half_width: float
    """Of the fix cost's interval, at which a cell is ended (0.03: 3 % to each side)."""
    cell_seconds: float
    """After which it is ended anyway; 0: after `samples`."""
    warm_up: int
    """Samples thrown away before the first cell."""
    settled: bool
    """Whether times had stopped falling by then."""
    output_tokens: int
    chunk: int
    """Tokens per chunk, read back from the engine."""
    shipped_alignment: int | None
    """Tokens to which the code under test rounds the hit window; None if it does not."""
    groups: list[Group]
    cells: list[Cell]
    provenance: Provenance
    oracle: Oracle | None = None
    """None while cells are missing."""
    finished: str | None = None
    """ISO 8601, UTC; None while cells are missing."""
    meters: list[Meter] = field(default_factory=list)
    no_energy: str = "It was measured before fixcost had meters."
    """Why some energy, or all, is not measured; "" if all is."""
    gpus: list[Gpu] = field(default_factory=list)
    pinned: bool | None = None
    """Whether the host memory of the offloading is pinned; None where nothing can be."""
    bandwidth: Bandwidth | None = None
    """None without a GPU."""
    clocks: Clocks | None = None
    schema: int = SCHEMA


@dataclass(frozen=True)
class _Versioned:
    schema: int


@dataclass(frozen=True)
class Record:
    """A sweep as read back from disk, cells in the order of the header."""

    header: Header
    cells: dict[Cell, CellResult] = field(default_factory=dict)


def read_header(folder: Path) -> Header | None:
    """The header in `folder`, or None if there is none.

    Raises:
        FixcostError: it is damaged or of another schema.
    """
    path = folder / HEADER
    if not path.exists():
        return None
    found = _read(path, _Versioned).schema
    if found != SCHEMA:
        raise FixcostError(
            f"{path} is of schema {found} and this fixcost reads schema {SCHEMA}: "
            f"remove {folder} and run the sweep again."
        )
    return _read(path, Header)


def write_header(folder: Path, header: Header) -> None:
    """Write the header of a sweep into `folder`, atomically."""
    write_atomically(folder / HEADER, _encode(header))


def read_cell(folder: Path, cell: Cell) -> CellResult | None:
    """The samples of a finished cell, or None if it is not finished.

    Raises:
        FixcostError: the file is damaged.
    """
    path = _cell_path(folder, cell)
    if not path.exists():
        return None
    result = _read(path, CellResult)
    whole = result.cell == cell and result.samples
    if not whole or not all(_is_whole(sample) for sample in result.samples):
        raise _damaged(path, "a sample, an arm or a figure is missing or impossible")
    return result


def write_cell(folder: Path, result: CellResult) -> None:
    """Write the samples of a finished cell into `folder`, atomically."""
    write_atomically(_cell_path(folder, result.cell), _encode(result))


def read(folder: Path) -> Record:
    """Read the finished cells of the sweep in `folder`.

    Raises:
        FixcostError: there is no record, or it is damaged.
    """
    header = read_header(folder)
    if header is None:
        raise FixcostError(f"There is no record in {folder}.")
    found = {cell: read_cell(folder, cell) for cell in header.cells}
    missing = [cell.label for cell, result in found.items() if result is None]
    if header.finished and missing:
        raise _damaged(folder, f"it should be complete and lacks [{missing[0]}]")
    return Record(header, {cell: result for cell, result in found.items() if result is not None})


def clear(folder: Path) -> None:
    """Remove the record in `folder`, if there is one, and nothing else that lies there."""
    (folder / HEADER).unlink(missing_ok=True)
    for path in (folder / "cells").glob("*.json"):
        path.unlink()


def _cell_path(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.key}.json"


def _encode(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _read(path: Path, kind: type[Decoded]) -> Decoded:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, OSError) as error:
        raise _damaged(path, str(error)) from None


def _is_whole(sample: Sample) -> bool:
    return set(sample.arms) == set(Arm) and all(arm.ttft > 0 for arm in sample.arms.values())


def _damaged(path: Path, reason: str) -> FixcostError:
    return FixcostError(f"{path} is damaged ({reason}): remove it and run the sweep again.")
