"""How fast this machine copies from host memory to a device: what a reload is held against."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from harness.record import Bandwidth

SIZE = 256 << 20
REPEATS = 5


def measure(device: str) -> Bandwidth:
    """Copy `SIZE` bytes from pinned and from pageable memory, in turn, timed on the device.

    Args:
        device: of torch; on "cpu" nothing can be pinned, and both are plain copies.
    """
    import torch

    target = torch.empty(SIZE, dtype=torch.uint8, device=device)
    pageable = torch.ones(SIZE, dtype=torch.uint8)
    pinned = pageable.pin_memory() if device != "cpu" else pageable.clone()
    seconds: dict[str, list[float]] = {"pinned": [], "pageable": []}
    for _ in range(REPEATS + 1):  # the first of each warms up
        for name, source in (("pinned", pinned), ("pageable", pageable)):
            seconds[name].append(_timed(device, partial(target.copy_, source)))
    rates = {name: SIZE / median(taken[1:]) for name, taken in seconds.items()}
    return Bandwidth(rates["pinned"], rates["pageable"])


def _timed(device: str, copy: Callable[[], Any]) -> float:
    import torch

    if device == "cpu":
        began = time.perf_counter()
        copy()
        return time.perf_counter() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    copy()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3
