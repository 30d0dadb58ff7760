"""The history across releases: each known release, or a build of one's own, measured by asv."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import (
    asv_names,
    bench,
    points,
    release_commits,
    release_table,
    releases,
    runs,
    subject,
)
from harness.errors import FixcostError
from harness.subject import Subject
from harness.vocabulary import CacheMode

BENCHMARKS = "^(reload|align)[.](Reload|FixCost|Start|Run)[.]"
_SIGN = "reload.Run.track_identity"
"""It has a value in every mode that was measured, and is not a number where there is no mode."""


@dataclass(frozen=True)
class State:
    """What can be said of a release or build on this machine."""

    name: str
    released: str
    """ISO date, or "" where it is not known."""
    measured: bool
    unpacked: bool
    impossible: str
    """Why it cannot be measured, or ""."""


def add(conf_path: Path, log: Path, wanted: Sequence[str]) -> list[str]:
    """Measure releases and builds in both cache modes, one after the other; their names.

    Args:
        conf_path: asv.conf.json.
        log: where everything goes that asv prints.
        wanted: versions and paths; none stands for every known release that is not measured yet.

    Raises:
        FixcostError: one cannot be had or was not measured. The others then are.
    """
    chosen = _embedded(conf_path)
    names, failures = [], []
    for one in wanted or _unmeasured(conf_path, chosen):
        try:
            names.append(_obtain(conf_path, chosen, one))
        except FixcostError as error:
            failures.append(str(error))
    for index, name in enumerate(names):
        print(f"{name}, {index + 1} of {len(names)}", flush=True)
        try:
            bench.measure(conf_path, log, BENCHMARKS, f"refs/tags/{name}^!")
        except FixcostError as error:
            failures.append(f"{name}: {error}")
    if failures:
        raise FixcostError(" ".join(failures))
    return names


def states(conf_path: Path) -> list[State]:
    """Every known release, every build of one's own, and the releases that cannot be measured.

    Raises:
        FixcostError: there is no subject, or what is stored is damaged.
    """
    chosen = subject.current(conf_path)
    table = release_table.read()
    here = release_commits.all_of(chosen.repository) if chosen.repository.exists() else {}
    known = {one.version: one.released.date().isoformat() for one in table.releases}
    found = [
        State(
            name=name,
            released=known.get(name, ""),
            measured=name in here and _is_measured(conf_path, here[name]),
            unpacked=releases.unpacked(name) is not None,
            impossible="",
        )
        for name in dict.fromkeys([*known, *here])
    ]
    return found + [State(name, "", False, False, why) for name, why in table.impossible.items()]


def _embedded(conf_path: Path) -> Subject:
    chosen = bench.prepare(conf_path)
    if chosen.repository != conf_path.parent / subject.FOLDER:
        raise FixcostError(
            "Releases are commits of the embedded subject, and another one is chosen: "
            "`fixcost subject create` goes back to it."
        )
    return chosen


def _unmeasured(conf_path: Path, chosen: Subject) -> list[str]:
    commits = release_commits.all_of(chosen.repository)
    known = [one.version for one in release_table.read().releases]
    return [name for name in known if not _is_measured(conf_path, commits[name])]


def _is_measured(conf_path: Path, commit: str) -> bool:
    machine = asv_names.registered_machine()
    if machine is None:
        return False
    stored = asv_names.stored(conf_path, machine, commit)
    return all(
        points.in_mode(stored, mode).get(_SIGN, {}).get((), points.NOTHING).value is not None
        and not runs.was_killed(conf_path, machine, commit, mode)
        for mode in CacheMode
    )


def _obtain(conf_path: Path, chosen: Subject, wanted: str) -> str:
    """The name of a release or build that is unpacked now and has a commit."""
    if "/" not in wanted and not Path(wanted).exists():
        release = releases.fetch(wanted)
        release_table.note(wanted, release.built, release.sha256)
        subject.restore(conf_path)
        return wanted
    path = Path(wanted).expanduser().resolve()
    if not path.exists():
        raise FixcostError(f"There is no {path}.")
    build = releases.join(path)
    subject.add_build(chosen, build)
    return build.name
