"""The energy of CPU packages and their memory: Intel's RAPL, which AMD has too, by powercap.

Linux shows it under `/sys/class/powercap` (Documentation/power/powercap/powercap.rst): `energy_uj`
counts microjoules and starts again at `max_energy_range_uj`. Its resolution is about a millisecond
(Hähnel and others, "Measuring energy consumption for short code paths using RAPL", 2012,
doi:10.1145/2425248.2425252). Only root may read it since Linux 5.10 (CVE-2020-8694).
"""

from collections.abc import Callable
from pathlib import Path

from harness.errors import MeterError

ROOT = Path("/sys/class/powercap")
JOULES = 1e-6
_MEASURED = ("package", "dram")


def zones(root: Path) -> list[Path]:
    """The folders of all packages and their memory, in their order; none without RAPL.

    `psys` holds packages, and `core` and `uncore` are parts of one: they would count twice.
    """
    found = [path for path in root.glob("*rapl:*") if "mmio" not in path.name]
    return sorted(path for path in found if _kind(path).startswith(_MEASURED))


def absence(root: Path) -> str:
    """Why there is none, in a sentence; "" if there is one."""
    return "" if zones(root) else "The processor's energy (RAPL) is not shown by this kernel."


def name(zone: Path) -> str:
    """For people: "package-0", "package-0 dram"."""
    kind = _kind(zone)
    if kind.startswith("package"):
        return kind
    parent = zone.parent / zone.name.rpartition(":")[0]
    return f"{_kind(parent)} {kind}"


def span(zone: Path) -> int:
    """The count at which the zone starts again at 0.

    Raises:
        MeterError: it cannot be read.
    """
    return _number(zone / "max_energy_range_uj", name(zone)) + 1


def reader(zone: Path) -> Callable[[], int]:
    """A function that reads the zone's microjoules, or raises `MeterError`."""
    said = name(zone)
    return lambda: _number(zone / "energy_uj", said)


def _kind(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


def _number(path: Path, said: str) -> int:
    try:
        return int(path.read_text())
    except PermissionError:
        raise MeterError(
            f"Only root may read the energy of {said}: run as root, or "
            f"`sudo chmod a+r {path}` until the next restart."
        ) from None
    except (OSError, ValueError) as error:
        raise MeterError(f"The energy of {said} cannot be read ({error}).") from None
