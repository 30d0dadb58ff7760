"""Every call of NVML, by nvidia-ml-py: what NVIDIA's driver says of its GPUs.

NVML's energy counter (`nvmlDeviceGetTotalEnergyConsumption`, mJ since the driver was loaded, from
Volta on) is made from a power sensor that is read every 20 to 100 ms and, on A100 and H100, looks
at a quarter of the time only (Yang, Adamek and Armour, "Part-time power measurements", SC 2024,
arXiv:2312.02741). A window therefore lasts many of its steps (`power.windows`).
"""

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import pynvml

from harness.errors import MeterError
from harness.record import Gpu, GpuState

JOULES = 1e-3
SPAN = 1 << 64
_THROTTLED = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "heat (driver)",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "heat (hardware)",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}

Answer = TypeVar("Answer")


@cache
def names() -> tuple[str, ...]:
    """The GPUs that the driver shows; empty without a driver. Asked once per process."""
    try:
        pynvml.nvmlInit()
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in _all())
    except pynvml.NVMLError:
        return ()


def absence() -> str:
    """Why there is no GPU, in a sentence; "" if there is one."""
    try:
        pynvml.nvmlInit()
        return "" if _all() else "The NVIDIA driver shows no GPU."
    except pynvml.NVMLError_LibraryNotFound:
        return "There is no NVIDIA driver."
    except pynvml.NVMLError as error:
        return f"NVIDIA's driver does not answer ({error})."


def used(count: int) -> list[tuple[str, Any]]:
    """Name and handle of the first `count` GPUs that `CUDA_VISIBLE_DEVICES` leaves to a process."""
    found = _all() if not absence() else []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        chosen = [one.strip() for one in visible.split(",") if one.strip()]
        found = [handle for one in chosen for handle in _matching(one, found)]
    return [(f"GPU {_or(pynvml.nvmlDeviceGetIndex, one)}", one) for one in found[:count]]


def energy(name: str, handle: Any) -> int:
    """Millijoules since the driver was loaded.

    Raises:
        MeterError: the GPU has no counter, this user may not read it, or the GPU is lost.
    """
    try:
        return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    except pynvml.NVMLError_NotSupported:
        raise MeterError(
            f"{name} has no energy counter (NVIDIA's have one from Volta on)."
        ) from None
    except pynvml.NVMLError_NoPermission:
        raise MeterError(
            f"This user may not read the energy of {name}: ask the administrator for access."
        ) from None
    except pynvml.NVMLError_GpuIsLost:
        raise MeterError(
            f"{name} has fallen off the bus: `dmesg` shows why, and only a restart brings it back."
        ) from None
    except pynvml.NVMLError as error:
        raise MeterError(f"The energy of {name} cannot be read ({error}).") from None


def describe(handle: Any) -> Gpu:
    """What does not change during a run, and who else computes here; before our own engine."""
    return Gpu(
        name=str(_or(pynvml.nvmlDeviceGetName, handle) or "unknown"),
        link_generation=_or(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        link_width=_or(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        most_link_width=_or(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        ecc=None if (mode := _or(pynvml.nvmlDeviceGetEccMode, handle)) is None else bool(mode[0]),
        sliced=bool((_or(pynvml.nvmlDeviceGetMigMode, handle) or [0])[0]),
        others=len(_or(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()),
    )


def state(handle: Any) -> GpuState:
    """What changes from moment to moment; None where the driver does not say."""
    reasons = _or(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
    return GpuState(
        temperature=_or(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        clock=_or(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock=_or(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        watts=None if (power := _or(_power, handle)) is None else power * 1e-3,
        throttled=tuple(said for bit, said in _THROTTLED.items() if reasons & bit),
        link_generation=_or(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        replays=_or(pynvml.nvmlDeviceGetPcieReplayCounter, handle),
        ecc_errors=_or(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
    )


def _all() -> list[Any]:
    return [
        pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
    ]


def _matching(chosen: str, handles: Sequence[Any]) -> list[Any]:
    """The handle of an index or of the beginning of a UUID, which `CUDA_VISIBLE_DEVICES` holds."""
    if chosen.isdecimal():
        return list(handles[int(chosen) : int(chosen) + 1])
    return [one for one in handles if str(_or(pynvml.nvmlDeviceGetUUID, one)).startswith(chosen)]


def _power(handle: Any) -> int:
    """Milliwatts of this moment; the older call gives a mean over a second on newer GPUs."""
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])
    if field.nvmlReturn == pynvml.NVML_SUCCESS:
        return int(field.value.uiVal)
    return int(pynvml.nvmlDeviceGetPowerUsage(handle))


def _or(ask: Callable[..., Answer], *arguments: Any) -> Answer | None:
    """The driver's answer; None where it gives none."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None
