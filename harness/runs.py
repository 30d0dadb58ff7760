"""What is said of a run beside its figures, kept next to asv's results so that it is published."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import asv_names, energy, trust
from harness.errors import FixcostError
from harness.files import write_atomically
from harness.record import Header, Record
from harness.trust import Instrument
from harness.vocabulary import CacheMode, Scenario

SUFFIX = ".run"
"""Of a JSON file; asv takes every `.json` in its folder for results."""
BEGUN = ".begun"
"""Of an empty file that is there while a run is under way, or was killed."""


@dataclass(frozen=True)
class Run:
    """The newest run of a commit on a machine."""

    header: Header
    faults: list[str]
    advice: list[str]
    instrument: Instrument
    no_energy: str = ""
    """Why there is no energy anywhere; "" if there is some, or the header says it."""

    @property
    def blind_scenarios(self) -> list[Scenario]:
        """Those in which nothing could show the known corruption."""
        return self.header.oracle.blind_scenarios if self.header.oracle else []


def keep(conf_path: Path, found: Record) -> None:
    """Write what is said of a finished run of a commit; nothing for the installed vLLM alone."""
    commit, machine = found.header.provenance.commit, asv_names.registered_machine()
    if commit is None or machine is None:
        return
    mode = CacheMode(found.header.provenance.cache_mode)
    _path(conf_path, machine, commit, BEGUN, mode).unlink(missing_ok=True)
    run = Run(
        header=found.header,
        faults=trust.faults(found),
        advice=trust.advice(found),
        instrument=trust.instrument(found.cells.values()),
        no_energy=energy.absence_in(found.header, found.cells.values()),
    )
    encoded = msgspec.json.format(msgspec.json.encode(run), indent=1)
    write_atomically(_path(conf_path, machine, commit, SUFFIX, mode), encoded + b"\n")


def begin(conf_path: Path, commit: str | None, mode: CacheMode = CacheMode.ALL) -> None:
    """Note that a run of a commit begins; `keep` or `end` take the note away again."""
    machine = asv_names.registered_machine()
    if commit is not None and machine is not None:
        write_atomically(_path(conf_path, machine, commit, BEGUN, mode), b"")


def end(conf_path: Path, commit: str | None, mode: CacheMode = CacheMode.ALL) -> None:
    """Note that a run ended by a fault of the commit's own code, not of the machine's."""
    machine = asv_names.registered_machine()
    if commit is not None and machine is not None:
        _path(conf_path, machine, commit, BEGUN, mode).unlink(missing_ok=True)


def was_killed(conf_path: Path, machine: str, commit: str, mode: CacheMode = CacheMode.ALL) -> bool:
    """Whether the newest run of a commit is under way or never ended of itself."""
    return _path(conf_path, machine, commit, BEGUN, mode).exists()


def read(conf_path: Path, machine: str, commit: str, mode: CacheMode = CacheMode.ALL) -> Run | None:
    """What is kept of a commit's run, or None.

    Raises:
        FixcostError: the file is damaged.
    """
    path = _path(conf_path, machine, commit, SUFFIX, mode)
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except msgspec.DecodeError as error:
        raise FixcostError(f"{path} is damaged ({error}): remove it.") from None


def _path(conf_path: Path, machine: str, commit: str, suffix: str, mode: CacheMode) -> Path:
    folder = conf_path.parent / asv_names.load_conf(conf_path).results_dir
    own = "" if mode is CacheMode.ALL else f"-{mode}"
    return Path(folder, machine, f"{commit[:8]}{own}{suffix}")
