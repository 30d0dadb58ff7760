"""Progress that crosses a process boundary: one process works, another owns the terminal.

asv captures all that a benchmark prints. So the working process writes its status to the file
that $FIXCOST_PROGRESS names, and asv's process, through our plugin, draws what it reads there.
Without the variable, as under pytest, the working process draws for itself.
"""

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

VARIABLE = "FIXCOST_PROGRESS"
_LOOK_EVERY = 0.1  # seconds between two looks at the status file
_LINE_EVERY = 5.0  # seconds between two plain lines, unless a tenth of the work is done sooner


class Step(Protocol):
    """Says that `advance` more of the work is done, and what is being done now."""

    def __call__(self, description: str = "", advance: int = 1) -> None: ...


@dataclass(frozen=True)
class Status:
    """How far the phase `label` is: `done` of `total` steps, now busy with `description`."""

    phase: int  # 1 for the first phase that this process tracks, and so on
    label: str
    description: str
    done: int
    total: int


_Show = Callable[[Status], None]
_phase_numbers = itertools.count(1)


@contextmanager
def track(total: int, label: str) -> Iterator[Step]:
    """Show the progress of a phase of `total` steps while the block runs; phases may follow."""
    phase, done, current = next(_phase_numbers), 0, ""
    file = os.environ.get(VARIABLE)
    with _writer(Path(file)) if file else _display() as show:

        def step(description: str = "", advance: int = 1) -> None:
            nonlocal done, current
            done += advance
            current = description or current
            show(Status(phase, label, current, done, total))

        step(advance=0)
        yield step


@contextmanager
def follow(file: Path) -> Iterator[None]:
    """Draw what a process that has $FIXCOST_PROGRESS=`file` tracks, while the block runs."""
    over = threading.Event()
    with _display() as show:

        def look() -> None:
            with suppress(OSError, ValueError):  # nothing written yet
                show(Status(**json.loads(file.read_text())))

        def watch() -> None:
            while not over.wait(_LOOK_EVERY):
                look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            look()


@contextmanager
def _writer(file: Path) -> Iterator[_Show]:
    partial = file.with_suffix(".partial")

    def write(status: Status) -> None:
        with suppress(OSError):  # whoever wanted to see it is gone: no reason to stop the work
            partial.write_text(json.dumps(asdict(status)))
            partial.replace(file)

    yield write


@contextmanager
def _display() -> Iterator[_Show]:
    """Show statuses on stderr: as a bar on a terminal, as a line now and then elsewhere."""
    console = Console(stderr=True)
    the_rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    bar = Progress(
        TextColumn("{task.fields[label]}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False, table_column=the_rest),
        console=console,
        expand=True,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        speed_estimate_period=float("inf"),  # a single step may take minutes
    )
    tasks: dict[int, TaskID] = {}
    print_line = _line_printer()
    drawn = sys.stderr.isatty() and not console.is_dumb_terminal

    def show(status: Status) -> None:
        if status.phase not in tasks:
            for earlier in tasks.values():
                bar.update(earlier, visible=False)
            tasks[status.phase] = bar.add_task("", total=status.total, label=status.label)
        task = tasks[status.phase]
        bar.update(task, completed=status.done, description=status.description)
        if not drawn:
            print_line(bar.tasks[task])

    if drawn:
        with bar:
            yield show
    else:
        yield show


def _line_printer() -> Callable[[Task], None]:
    """A function that prints a task as a line, once for each tenth and seldom in between."""
    last_mark, last_line, last_time = (-1, -1), "", 0.0

    def print_line(task: Task) -> None:
        nonlocal last_mark, last_line, last_time
        mark = (int(task.id), int(task.percentage) // 10)
        line = f"{task.fields['label']}: {task.completed:.0f}/{task.total:.0f}"
        line += f" ({task.description})" if task.description else ""
        is_due = line != last_line and time.monotonic() - last_time >= _LINE_EVERY
        if mark != last_mark or is_due:
            left = f", {task.time_remaining:.0f} s left" if task.time_remaining else ""
            print(line + left, file=sys.stderr, flush=True)
            last_mark, last_line, last_time = mark, line, time.monotonic()

    return print_line
