"""What the GPUs did that stands against believing a run."""

from collections.abc import Iterator

from harness.record import Gpu, GpuState, Record
from harness.wording import listed


def faults(record: Record) -> Iterator[str]:
    """What makes times those of something else, or output wrong that no code made wrong."""
    if record.header.pinned is False:
        yield (
            "Host memory was PAGEABLE, so every reload was slower than it should be: vLLM could "
            "not pin it (ulimit -l, or cudaHostRegister in its log)."
        )
    for index, states in enumerate(_states(record)):
        errors = [state.ecc_errors for state in states if state.ecc_errors is not None]
        if errors and errors[-1] > errors[0]:
            yield (
                f"GPU {index} of this run had {errors[-1] - errors[0]} memory errors that ECC "
                f"could not correct: have it checked (nvidia-smi -q -d ECC)."
            )


def advice(record: Record) -> Iterator[str]:
    """What made the times unsteady, and what to do about it, a sentence each."""
    for index, (gpu, states) in enumerate(zip(record.header.gpus, _states(record), strict=True)):
        yield from _described(index, gpu)
        held = sorted({reason for state in states for reason in state.throttled})
        if held:
            share = sum(bool(state.throttled) for state in states) / len(states)
            yield (
                f"The clock of GPU {index} was held down at {share:.0%} of the moments looked at "
                f"({listed(held)}): cool it, or lock its clock (nvidia-smi --lock-gpu-clocks)."
            )
        replays = [state.replays for state in states if state.replays is not None]
        if replays and replays[-1] > replays[0]:
            yield (
                f"PCIe had to send {replays[-1] - replays[0]} packets to or from GPU {index} "
                f"again: the slot or its cable is bad."
            )


def _described(index: int, gpu: Gpu) -> Iterator[str]:
    if gpu.others:
        programs = "another program" if gpu.others == 1 else f"{gpu.others} other programs"
        yield f"GPU {index} was shared with {programs}: measure on one that is free."
    if gpu.sliced:
        yield (
            f"GPU {index} is divided into MIG slices, and its energy and its link are those of all "
            f"of them: measure on an undivided one."
        )
    if gpu.link_width and gpu.most_link_width and gpu.link_width < gpu.most_link_width:
        yield (
            f"GPU {index} is linked by {gpu.link_width} of {gpu.most_link_width} lanes of PCIe, so "
            f"reloads are slower than they need be: try another slot."
        )


def _states(record: Record) -> list[list[GpuState]]:
    """By GPU, in the order in which they were seen."""
    seen: list[list[GpuState]] = [[] for _ in record.header.gpus]
    for result in record.cells.values():
        moments = [result.gpus, *(window.gpus for window in result.windows)]
        for moment in moments:
            for index, state in enumerate(moment):
                seen[index].append(state)
    return seen
