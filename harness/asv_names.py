"""Every private name and habit of asv (0.6.6) that fixcost relies on; nothing else touches one."""

import ast
import itertools
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asv import config, environment, machine, results, step_detect, util
from asv.commands.publish import Publish
from asv.console import log
from asv.graph import Graph
from asv.publishing import OutputPublisher as OutputPublisher
from asv.util import UserError as UserError

from harness import git
from harness.errors import FixcostError

RUNNING_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def load_conf(path: Path) -> Any:
    """The configuration at `path` as asv itself reads it.

    Raises:
        FixcostError: asv cannot read it.
    """
    try:
        return config.Config.load(str(path))
    except (util.UserError, ValueError) as error:
        raise FixcostError(f"asv cannot read {path}: {error}") from None


@contextmanager
def own_lines() -> Iterator[None]:
    """Keep asv's open line and what the block writes to the terminal on lines of their own.

    asv prints "Setting up ..." and stays on that line to put a padded "ok" at its end; here the
    line is ended, and the "ok" that follows becomes a line too.
    """
    log.flush()
    log._prev_message = None
    yield


class CommitFailed(util.ProcessError):  # type: ignore[misc]
    """One commit cannot be put in place; asv marks that commit as failed and goes on.

    asv does so for `ProcessError` alone, which wants a command and its output.
    """

    def __init__(self, reason: str) -> None:
        super().__init__([], 1, "", reason)

    def __str__(self) -> str:
        return str(self.stderr)


class CommitEnvironment(environment.Environment):  # type: ignore[misc]
    """An asv environment that puts a commit in place without asv's build and install steps.

    A subclass has a `tool_name` and says the rest in public methods that know nothing of asv.
    """

    matches_python_fallback = False  # else asv takes this class for any Python without asking

    def __init__(self, conf: Any, python: str, requirements: Any, tagged_env_vars: Any) -> None:
        if python != RUNNING_PYTHON:
            raise environment.EnvironmentUnavailable(
                f"{self.tool_name} runs on asv's own Python {RUNNING_PYTHON}, not on {python}"
            )
        self.overlay_ref: str | None = getattr(conf, "overlay_ref", None)
        # The base class reads these two before it sets them.
        self._python, self._requirements = python, requirements
        super().__init__(conf, python, requirements, tagged_env_vars)

    def check(self) -> None:
        """Raise `FixcostError` if no commit at all can be put in place."""
        raise NotImplementedError

    def fingerprint(self) -> list[str]:
        """What a commit is put on top of; asv puts it in place again when this changes."""
        raise NotImplementedError

    def build(self, folder: Path) -> None:
        """Make `folder` an environment with a `bin/python`."""
        raise NotImplementedError

    def install(self, folder: Path, repository: Path, commit: str) -> None:
        """Make the Python in `folder` see `commit`; a `FixcostError` fails this commit alone."""
        raise NotImplementedError

    def is_installed(self, folder: Path, commit: str) -> bool:
        """Whether what `install` made for `commit` is still there."""
        raise NotImplementedError

    def run_setup_cache(self, arguments: list[str], **options: Any) -> Any:
        """Run the process that fills a benchmark's cache (in the end with `run_executable`)."""
        return self.run_executable("python", arguments, **options)

    @classmethod
    def matches(cls, python: str) -> bool:
        return python == RUNNING_PYTHON

    def create(self) -> None:
        try:
            self.check()
        except FixcostError as error:
            raise util.UserError(str(error)) from None
        super().create()

    def check_presence(self) -> bool:
        # The base class wants a pip in there as well.
        expected = {
            "tool_name": self.tool_name,
            "python": self._python,
            "requirements": self._requirements,
            "build_env_vars": self.build_env_vars,
        }
        try:
            found = self.load_info_file(self._path) == expected
            return found and os.path.exists(self.find_executable("python"))  # noqa: PTH110
        except (util.UserError, OSError):
            return False

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ARG002
        self._set_build_dirs(None, None)
        self._set_commit_hash(commit_hash)  # becomes ASV_COMMIT in the benchmarks
        if self.installed_commit_hash == commit_hash:
            return
        self._set_installed_commit_hash(None)
        try:
            self.install(Path(self._path), Path(repo._path), commit_hash)
        except FixcostError as error:
            log.error(str(error))
            raise CommitFailed(str(error)) from None
        self._set_installed_commit_hash(commit_hash)

    def run(self, args: list[str], **kwargs: Any) -> Any:
        # asv's runner starts "benchmark.py setup_cache ..." through this very method.
        if args[1:2] == ["setup_cache"]:
            try:
                return self.run_setup_cache(args, **kwargs)
            except KeyboardInterrupt:  # asv says so too, everywhere but here
                raise util.UserError("Interrupted.") from None
        return self.run_executable("python", args, **kwargs)

    def _setup(self) -> None:
        self.build(Path(self._path))

    def _get_install_checksum(self) -> list[Any]:
        return [*super()._get_install_checksum(), *self.fingerprint()]

    def _get_installed_commit_hash(self) -> str | None:
        commit: str | None = super()._get_installed_commit_hash()
        return commit if commit and self.is_installed(Path(self._path), commit) else None


def is_step(line: str) -> bool:
    """Whether a line that asv printed says what it does now, rather than what came out."""
    return line.startswith("[") and "===" not in line and "For parameters" not in line


def without_step(line: str) -> str:
    """A line that asv printed, without the mark of the step it belongs to: "[90.00%] ·· "."""
    return re.sub(r"^(\[ *[0-9.]+%\])?[ ·]*", "", line)


# What asv has stored.


@dataclass(frozen=True)
class Stored:
    """One stored figure: `value` is None where the benchmark failed, NaN where it was skipped."""

    value: float | None
    samples: tuple[float, ...]


Parameters = tuple[object, ...]


def registered_machine() -> str | None:
    """The name under which asv keeps this machine's results, or None before `asv machine`."""
    name = machine.Machine.get_unique_machine_name()
    try:
        return str(machine.MachineCollection.load(name)["machine"])
    except util.UserError:
        return None


def stored(conf_path: Path, machine_name: str, commit: str) -> dict[str, dict[Parameters, Stored]]:
    """What is stored of a commit (full hash): by benchmark name, then by its parameters.

    Raises:
        FixcostError: a results file of this commit is damaged.
    """
    found: dict[str, dict[Parameters, Stored]] = {}
    for path in _results_files(conf_path, machine_name, f"{commit[:8]}-*.json"):
        found |= _load_results(path, machine_name)
    return found


def _stored(value: object, drawn: object) -> Stored:
    samples = tuple(map(float, drawn)) if isinstance(drawn, list) else ()
    if value is not None and (not isinstance(value, int | float) or math.isinf(value)):
        raise ValueError(f"{value!r} is not a figure")
    return Stored(value, samples)


@dataclass(frozen=True)
class Measured:
    """One commit of which something is stored."""

    commit: str
    date: int
    """Of the commit, in milliseconds since 1970."""


def measured(conf_path: Path, machine_name: str) -> list[Measured]:
    """The commits of which a machine has results, the oldest first.

    Raises:
        FixcostError: a results file is damaged.
    """
    found = {}
    for path in _results_files(conf_path, machine_name, "*-*.json"):
        try:
            kept = results.Results.load(str(path), machine_name=machine_name)
        except Exception as error:  # see `_load_results`
            raise _damaged(path, error) from None
        found[kept.commit_hash] = Measured(kept.commit_hash, kept.date)
    return sorted(found.values(), key=lambda one: one.date)


def machines(conf_path: Path) -> dict[str, dict[str, str]]:
    """What asv knows of each machine that has results: "cpu", "ram" and others, by its name."""
    folder = conf_path.parent / load_conf(conf_path).results_dir
    found = {}
    for path in sorted(folder.glob("*/machine.json")):
        described = util.load_json(str(path), api_version=machine.Machine.api_version)
        found[described.pop("machine")] = described
    return found


def steps(values: list[float | None]) -> list[int]:
    """Where a new level begins in a series, by asv's own detection."""
    return [left for left, *_ in step_detect.detect_steps(values)[1:]]


def without_value(benchmarks: Any, graphs: Any) -> dict[str, set[tuple[str, int | None]]]:
    """What has no value at the newest commit: by summary file, a benchmark and a parameter index.

    asv's list shows the last good value of those.
    """
    found: dict[str, set[tuple[str, int | None]]] = {}
    for name, benchmark in benchmarks.items():
        for graph in graphs.get_graph_group(name):
            data = graph.get_data()
            if not data:
                continue
            newest = data[-1][1]
            summary = f"{Graph.get_file_path(graph.params, 'summary')}.json"
            missing = found.setdefault(summary, set())
            if not benchmark["params"]:
                missing |= {(name, None)} if newest is None else set()
            elif newest is not None:
                missing |= {(name, i) for i, value in enumerate(newest) if value is None}
    return found


def publish_also(*refs: str) -> None:
    """Let `asv publish` give further branches graphs of their own, where the repository has them.

    In asv.conf.json they would be run by a bare `asv run` as well; and asv puts what is tagged and
    on no branch on the graphs of all.

    Args:
        refs: branches by their full names, or what their names begin with.
    """
    original = Publish.run.__func__

    def run(cls: type, conf: Any, *arguments: Any, **options: Any) -> Any:
        listing = ("for-each-ref", "--format=%(refname:lstrip=2)", *refs)
        further = git.lines(Path(conf.repo), *listing) if Path(conf.repo).is_dir() else []
        conf.branches = list(dict.fromkeys([*conf.branches, *further]))
        return original(cls, conf, *arguments, **options)

    Publish.run = classmethod(run)


def check_results(conf_path: Path, machine_name: str) -> None:
    """Read every results file of a machine.

    Raises:
        FixcostError: one of them is damaged.
    """
    for path in _results_files(conf_path, machine_name, "*-*.json"):
        _load_results(path, machine_name)


def _results_files(conf_path: Path, machine_name: str, pattern: str) -> list[Path]:
    """The results files of a machine, the oldest first."""
    folder = conf_path.parent / load_conf(conf_path).results_dir / machine_name
    return sorted(folder.glob(pattern), key=lambda file: file.stat().st_mtime)


def _load_results(path: Path, machine_name: str) -> dict[str, dict[Parameters, Stored]]:
    try:
        kept = results.Results.load(str(path), machine_name=machine_name)
        found = {}
        for name in kept.get_all_result_keys():
            params = kept.get_result_params(name)
            values = kept.get_result_value(name, params)
            samples = kept.get_result_samples(name, params)
            points = itertools.product(*params)
            found[name] = {
                tuple(ast.literal_eval(part) for part in point): _stored(value, drawn)
                for point, value, drawn in zip(points, values, samples, strict=True)
            }
        return found
    except Exception as error:  # whatever asv stumbles over in a file that anyone may edit
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> FixcostError:
    reason = str(error).removeprefix(f"Error loading results file '{path}': ")
    return FixcostError(f"{path} is damaged ({reason}): remove it and run the benchmarks again.")
