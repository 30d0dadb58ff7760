"""What this machine can and cannot do, checked before anything is measured."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from harness import (
    asv_names,
    engine,
    git,
    hardware,
    nvml,
    places,
    profiles,
    protocol,
    subject,
    vllm_names,
)
from harness.cells import check_fit, grid
from harness.errors import FixcostError
from harness.profiles import Profile

_DISK_BYTES = 1 << 30


class Outcome(StrEnum):
    """What a check found."""

    OK = "ok"
    ADVICE = "advice"
    """It works, but could work better."""
    MISSING = "missing"
    """Nothing can be measured until this is mended."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's."""

    outcome: Outcome
    subject: str
    sentence: str


def examine(profile: Profile) -> Iterator[Finding]:
    """Check everything a sweep of this profile needs; the last check starts its engine."""
    findings = [*_machine(profile), *_installation(), *_asv()]
    yield from findings
    if any(finding.outcome is Outcome.MISSING for finding in findings):
        yield Finding(Outcome.ADVICE, "engine", "Not tried: mend what is missing first.")
    else:
        yield _engine(profile)


def _machine(profile: Profile) -> Iterator[Finding]:
    cores, load = hardware.cores(), hardware.load_average()
    yield Finding(Outcome.OK, "processor", f"{hardware.cpu_name()}, {len(cores)} cores free to us.")
    if load > len(cores) / 2:
        yield Finding(
            Outcome.ADVICE,
            "load",
            f"The machine is busy (load {load:.1f} on {len(cores)} cores): times will be noisy.",
        )
    if threads := os.environ.get("OMP_NUM_THREADS"):
        yield Finding(Outcome.ADVICE, "threads", f"OMP_NUM_THREADS={threads} limits the engine.")
    names = nvml.names()
    found = ", ".join(names) if names else "No NVIDIA GPU: CPU profiles only."
    yield Finding(Outcome.OK, "GPU", found)
    yield _attempt("profile", f"{profile.name} can run here.", profiles.check_device, profile)
    yield _attempt("memory", "There is enough.", engine.check_memory, profile)
    free = shutil.disk_usage(places.ROOT).free
    yield Finding(
        Outcome.OK if free > _DISK_BYTES else Outcome.MISSING,
        "disk",
        f"{free / (1 << 30):.1f} GiB are free; a run needs up to {_DISK_BYTES >> 30} GiB.",
    )


def _installation() -> Iterator[Finding]:
    version = vllm_names.installed_version()
    if version is None:
        yield Finding(Outcome.MISSING, "vLLM", engine.NOT_INSTALLED)
        return
    yield Finding(Outcome.OK, "vLLM", f"{version} (fixcost knows {vllm_names.SUPPORTED_VERSIONS}).")


def _asv() -> Iterator[Finding]:
    yield _attempt("git", "It works.", git.output, places.ROOT, "--version")
    machine = asv_names.registered_machine()
    yield Finding(
        Outcome.OK if machine else Outcome.ADVICE,
        "asv machine",
        f"Known as {machine}." if machine else "Not registered: `asv machine --yes` does that.",
    )
    if machine:
        yield _attempt("results", "Readable.", asv_names.check_results, places.ASV_CONF, machine)
    try:
        chosen = subject.current(places.ASV_CONF)
    except FixcostError as error:
        yield Finding(Outcome.MISSING, "subject", str(error))
        return
    embedded = chosen.repository == places.ROOT / subject.FOLDER
    missing = [
        branch
        for branch in (chosen.base, chosen.fix)
        if git.commit_of(chosen.repository, branch) is None
    ]
    yield Finding(
        Outcome.OK if not missing else Outcome.ADVICE if embedded else Outcome.MISSING,
        "subject",
        f"{chosen.repository} has no {' and no '.join(missing)}: `fixcost subject create` "
        f"makes the embedded one."
        if missing
        else f"{chosen.repository}: {chosen.base} against {chosen.fix}.",
    )


def _engine(profile: Profile) -> Finding:
    try:
        with engine.start(profile) as running:
            extra = protocol.extra_tokens(running.chunk, profile.output_tokens)
            check_fit(grid(profile.chunks), running.chunk, running.context, extra)
            alignment = running.shipped_alignment
            return Finding(
                Outcome.OK,
                "engine",
                f"It starts; a chunk is {running.chunk} tokens; the installed code "
                + ("rounds the hit window down to it." if alignment else "does not align."),
            )
    except FixcostError as error:
        return Finding(Outcome.MISSING, "engine", str(error))


def _attempt(name: str, sentence: str, check: Callable[..., object], *arguments: object) -> Finding:
    try:
        check(*arguments)
    except FixcostError as error:
        return Finding(Outcome.MISSING, name, str(error))
    return Finding(Outcome.OK, name, sentence)
