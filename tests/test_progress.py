"""Progress within one process, from one process to another, and on a real terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from harness import progress

ROOT = Path(__file__).parents[1]

WORK = """
from harness.progress import track
with track(2, "warming up") as step:
    step("model")
    step()
with track(40, "cells") as step:
    for cell in range(40):
        step(f"cell [a] {cell}")
"""

FOLLOW = """
import os, subprocess, sys, tempfile, threading
from pathlib import Path
from harness import progress
status = Path(tempfile.mkdtemp(), "status.json")
with progress.follow(status):
    child = {**os.environ, progress.VARIABLE: str(status)}
    subprocess.run([sys.executable, "-c", sys.argv[1]], env=child, stderr=subprocess.STDOUT,
                   stdout=subprocess.PIPE, check=True)
for thread in threading.enumerate()[1:]:
    thread.join(10)
assert threading.active_count() == 1
"""

INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from harness import progress
status = Path(sys.argv[1])
status.write_text('{"phase": 1, "label": "cells", "description": "", "done": 3, "total": 9}')
try:
    with progress.follow(status):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
except KeyboardInterrupt:
    for thread in threading.enumerate()[1:]:
        thread.join(10)
    print("threads", threading.active_count())
"""


def environment() -> dict[str, str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"}
    variables.pop(progress.VARIABLE, None)
    return variables


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment())


def run_on_terminal(*arguments: str) -> str:
    """What the command writes to its terminal, which is both its stdout and its stderr."""
    ours, its = pty.openpty()
    command = [sys.executable, "-c", *arguments]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment())
    os.close(its)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how a terminal says that its other end is gone
            piece = b""
        if not piece:
            break
        written += piece
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode()


def test_without_a_terminal_there_is_a_plain_line_for_each_tenth() -> None:
    finished = run(WORK)

    assert finished.stdout == ""
    lines = [line.partition(", ")[0] for line in finished.stderr.splitlines()]
    assert lines[:3] == [
        "warming up: 0/2",
        "warming up: 1/2 (model)",
        "warming up: 2/2 (model)",
    ]
    tenths = [f"cells: {done}/40 (cell [a] {done - 1})" for done in range(4, 41, 4)]
    assert lines[3] == "cells: 0/40"
    assert [line for line in lines[4:] if line in tenths] == tenths
    assert "\x1b" not in finished.stderr


def test_on_a_terminal_there_is_a_bar_that_clears_itself() -> None:
    written = run_on_terminal(WORK)

    assert "warming up" in written and "━" in written
    assert "40/40" in written and "cell [a] 39" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert written.endswith("\x1b[2K")


def test_a_child_says_it_and_its_parent_draws_it() -> None:
    captured = run(FOLLOW, WORK)
    assert captured.stdout == ""
    assert captured.stderr.splitlines()[-1] == "cells: 40/40 (cell [a] 39)"

    written = run_on_terminal(FOLLOW, WORK)
    assert "40/40" in written and "━" in written
    assert written.endswith("\x1b[2K")


def test_a_child_that_says_nothing_shows_nothing(tmp_path: Path) -> None:
    with progress.follow(tmp_path / "status.json"):
        pass
    assert run(FOLLOW, "print('quiet')").stderr == ""


def test_a_child_prints_nothing_itself(tmp_path: Path) -> None:
    variables = {**environment(), progress.VARIABLE: str(tmp_path / "status.json")}
    command = [sys.executable, "-c", WORK]
    child = subprocess.run(command, check=True, capture_output=True, env=variables)
    assert (child.stdout, child.stderr) == (b"", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_folder_that_is_gone_does_not_stop_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "gone" / "status.json"))
    with progress.track(1, "cells") as step:
        step("one")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_the_terminal_and_the_process_tidy(tmp_path: Path) -> None:
    written = run_on_terminal(INTERRUPTED, str(tmp_path / "status.json"))

    assert "3/9" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert written.splitlines()[-1].endswith("threads 1")


def test_an_error_in_the_work_goes_through(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), progress.track(2, "cells") as step:
        step("first")
        raise ValueError("broken")
    assert "first" in capfd.readouterr().err
