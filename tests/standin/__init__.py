"""A driver library for GPUs that are not there, and a powercap tree; both behave as a test says."""

import ctypes
import subprocess
from pathlib import Path

import pynvml

from harness import nvml

_SOURCE = Path(__file__).with_name("nvml.c")
_GPUS = 2


class StandInGpu(ctypes.Structure):
    """`struct gpu` of nvml.c."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("now", "watts", "spent", "period", "jitter")),
        ("next_step", ctypes.c_double),
        ("shown", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("seed", ctypes.c_uint32),
        ("energy_status", ctypes.c_int32),
        ("calls_left", ctypes.c_int32),
        *(
            (name, ctypes.c_uint32)
            for name in ("temperature", "width", "most_width", "processes", "mig", "ecc")
        ),
        ("reasons", ctypes.c_uint64),
        ("ecc_errors", ctypes.c_uint64),
        ("replays", ctypes.c_uint32),
    ]


def compile_driver(folder: Path) -> Path:
    """The library, under the name that the real bindings look for."""
    path = folder / "libnvidia-ml.so.1"
    command = ("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run([*command, "-o", path, _SOURCE], check=True)
    return path


class Driver:
    """The library, loaded in place of the driver's until `close`."""

    def __init__(self, folder: Path) -> None:
        self._library = ctypes.CDLL(str(compile_driver(folder)))
        self._real = pynvml.nvmlLib
        self._put(self._library)
        self._advance = self._library.standin_advance
        self._advance.argtypes = [ctypes.c_int, ctypes.c_double]
        self.gpus = (StandInGpu * _GPUS).in_dll(self._library, "gpus")

    def close(self) -> None:
        """Give the bindings back what they had."""
        self.reset(0)
        self._put(self._real)

    def _put(self, library: ctypes.CDLL | None) -> None:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()
        nvml.names.cache_clear()

    def reset(self, count: int) -> None:
        """So many sound GPUs at time 0, whose counters move every 100 ms; 0 unloads the driver."""
        for gpu in self.gpus:
            ctypes.memset(ctypes.byref(gpu), 0, ctypes.sizeof(gpu))
            gpu.watts, gpu.period, gpu.next_step = 100.0, 0.1, 0.1
            gpu.calls_left, gpu.temperature = -1, 40
            gpu.width = gpu.most_width = 16
            gpu.ecc = 1
        ctypes.c_int32.in_dll(self._library, "count").value = count
        nvml.names.cache_clear()

    def clock(self) -> float:
        """The stand-in's own time, in seconds."""
        return float(self.gpus[0].now)

    def advance(self, seconds: float) -> None:
        """Let time go on."""
        for index in range(_GPUS):
            self._advance(index, seconds)


class Powercap:
    """A folder like /sys/class/powercap with one package and its memory."""

    def __init__(self, root: Path, span: int = 262_143_328_850) -> None:
        self.root, self.span = root, span
        self.package = self._zone("intel-rapl:0", "package-0")
        self.dram = self._zone("intel-rapl:0:1", "dram")
        self._zone("intel-rapl:0:0", "core")
        self._zone("intel-rapl:1", "psys")
        self._zone("intel-rapl-mmio:0", "package-0")
        (root / "intel-rapl").mkdir()

    def _zone(self, folder: str, name: str) -> Path:
        zone = self.root / folder
        zone.mkdir(parents=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "max_energy_range_uj").write_text(f"{self.span}\n")
        self.show(zone, 0)
        return zone

    def show(self, zone: Path, microjoules: int) -> None:
        """Put a count there, whole at any moment, as the kernel does."""
        scratch = zone / ".next"
        scratch.write_text(f"{microjoules % (self.span + 1)}\n")
        scratch.replace(zone / "energy_uj")
