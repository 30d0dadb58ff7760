"""What cannot be checked without a GPU, in a few minutes and a short table (scripts/gpu_check.sh).

Nothing is imported before the step that needs it: on a bare machine what is missing is named, and
the steps that need only torch and NVML are taken all the same.
"""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

SECONDS = 480.0
"""For everything; the engine is not started in the last `ENGINE_SECONDS` of it."""
ENGINE_SECONDS = 150.0
NEEDED = ("numpy", "scipy", "msgspec", "pynvml", "filelock", "rich", "safetensors", "torch", "vllm")
FAILED, NO_GPU = 1, 2

Line = tuple[str, str, str]
"""What was looked at, "ok", "FAILED" or "missing", and what was found."""


def main(place: Path) -> int:
    """Take every step that can be taken, print a line for each, and return the exit code.

    Args:
        place: a folder for the record of the engine's cells.
    """
    began = time.monotonic()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    lines: list[Line] = []

    def note(line: Line) -> None:
        lines.append(line)
        print(f"{line[0]:<12} {line[1]:<8} {line[2]}", flush=True)

    note(("Python", "ok", sys.version.split()[0]))
    said = f"{', '.join(missing)}: steps that need them are left out" if missing else "all there"
    note(("packages", "missing" if missing else "ok", said))
    steps: list[tuple[str, set[str], Callable[[], Iterator[str]]]] = [
        ("GPU", {"pynvml", "numpy", "msgspec"}, gpus),
        ("meters", {"pynvml", "numpy", "msgspec"}, meters),
        ("known load", {"pynvml", "numpy", "msgspec", "torch"}, known_load),
        ("bandwidth", {"torch", "msgspec"}, host_to_device),
        ("eager", set(NEEDED), lambda: engine(place / "eager", "gpu-1b-eager")),
        ("CUDA graphs", set(NEEDED), lambda: engine(place / "graphs", "gpu-1b")),
    ]
    for name, needs, step in steps:
        late = needs == set(NEEDED) and time.monotonic() - began > SECONDS - ENGINE_SECONDS
        if lacking := sorted(needs & set(missing)):
            note((name, "missing", ", ".join(lacking)))
        elif late:
            note((name, "missing", f"left out: {SECONDS:.0f} s would not have been enough"))
        else:
            for line in _taken(name, step):
                note(line)
        if name == "GPU" and lines[-1][1] == "FAILED":
            return NO_GPU
    return FAILED if any(line[1] == "FAILED" for line in lines) else 0


def _taken(name: str, step: Callable[[], Iterator[str]]) -> Iterator[Line]:
    """The lines of a step; what it raises is a line too, so that the next one is still taken."""
    try:
        for said in step():
            yield name, "ok", said
    except Exception as error:  # from torch, the driver or vLLM
        yield name, "FAILED", " ".join(f"{type(error).__name__}: {error}".split())[:300]


def gpus() -> Iterator[str]:
    """What the driver says of each GPU."""
    from harness import nvml
    from harness.errors import FixcostError

    if absence := nvml.absence():
        raise FixcostError(absence)
    for name, handle in nvml.used(8):
        found, now = nvml.describe(handle), nvml.state(handle)
        yield (
            f"{name}: {found.name}, {now.temperature} degrees, {now.watts} W, {now.clock} MHz, "
            f"PCIe generation {found.link_generation} with {found.link_width} of "
            f"{found.most_link_width} lanes, ECC {found.ecc}, MIG {found.sliced}, "
            f"{found.others} other programs"
        )


def meters() -> Iterator[str]:
    """Which energy counters there are, and how often they move."""
    from harness.errors import MeterError
    from harness.power import meters as power_meters

    found = power_meters.find(1)
    if not found.counters:
        raise MeterError(found.reason)
    for meter in found.described:
        yield f"{meter.name} moves every {meter.period * 1e3:.1f} ms"
    if found.reason:
        yield f"without: {found.reason}"


def known_load() -> Iterator[str]:
    """Energy of matrix products, against the power that the driver shows meanwhile."""
    import numpy as np
    import torch

    from harness.power import meters as power_meters
    from harness.power import windows
    from harness.vocabulary import Arm

    factor = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    found, seen = power_meters.find(1), list[float]()

    def multiply() -> None:
        for _ in range(10):
            factor @ factor
        torch.cuda.synchronize()
        seen.append(found.states()[0].watts or 0.0)

    load = windows.Load(prepare=multiply, once=multiply)
    each = windows.length(found, 12.0, 2)
    taken = list(windows.alternate(found, {Arm.COLD: load}, each, np.random.default_rng(0)))
    for arm, name in ((Arm.COLD, "matrix products"), (None, "idle")):
        of_gpu = [(w.energy["GPU 0"], w.seconds) for w in taken if w.arm is arm]
        seconds = sum(s for _, s in of_gpu)
        watts = sum(energy.joules for energy, _ in of_gpu) / seconds
        error = sum(energy.error for energy, _ in of_gpu) / seconds
        yield f"{name}: {watts:.0f} W, right to within {error:.0f} W, over {seconds:.0f} s"
    yield f"matrix products: {sum(seen) / len(seen):.0f} W is what the driver showed meanwhile"


def host_to_device() -> Iterator[str]:
    """How fast pinned and pageable memory is copied."""
    from harness import bandwidth

    rates = bandwidth.measure("cuda")
    yield f"{rates.pinned / 1e9:.1f} GB/s from pinned memory"
    yield f"{rates.pageable / 1e9:.1f} GB/s from pageable memory"


def engine(place: Path, profile_name: str) -> Iterator[str]:
    """All arms at an exact boundary and beside it, on a model made from a seed."""
    from harness import conclusion, energy, estimate, numbers, sweep, verdict
    from harness.cells import Cell
    from harness.profiles import PROFILES
    from harness.vocabulary import REPORTED_ARMS, Offset, Scenario

    cells = [Cell(Scenario.REPEAT, 2, offset) for offset in (Offset.EXACT, Offset.ONE_ABOVE)]
    profile = replace(PROFILES[profile_name], cell_seconds=10.0, energy_seconds=20.0)
    found = sweep.run(profile, cells, place, seed=0)
    oracle = verdict.oracle_of(found)
    for cell, result in found.cells.items():
        for arm in REPORTED_ARMS:
            ttft, moved = (
                estimate.median(numbers.values(result, arm, metric)).value
                for metric in ("ttft", "reload_bytes")
            )
            spent = energy.per_request(result, arm)
            joules = f", {energy.mean(spent).value:.3g} J" if spent else ""
            yield (
                f"{cell.label}, {arm}: {verdict.judge(result, arm, oracle)}, {ttft * 1e3:.1f} ms, "
                f"{moved / 1e6:.1f} MB reloaded{joules}"
            )
    yield conclusion.of_record(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
