"""Real engines, started once and shared: one sweep of the embedded model for most tests."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness import cells, sweep
from harness.profiles import PROFILES
from harness.record import Record

SAMPLES = 3


@pytest.fixture(scope="session")
def shipped_record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The sweep of the embedded model on the installed vLLM, which has the fix."""
    profile = replace(PROFILES["cpu-tiny"], samples=SAMPLES, cell_seconds=0.0)
    place = tmp_path_factory.mktemp("sweeps") / "shipped"
    return sweep.run(profile, cells.grid(profile.chunks), place, seed=1)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the user has set must not decide a test."""
    for name in ("FIXCOST_PROFILE", "FIXCOST_MODEL", "FIXCOST_SAMPLES", "FIXCOST_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    yield
