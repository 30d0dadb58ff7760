"""One engine for all benchmarks of a session."""

from collections.abc import Iterator

import pytest

from harness import engine, profiles
from harness.engine import Engine
from harness.power.meters import Meters, find


@pytest.fixture(scope="session")
def meters() -> Meters:
    """Those of this machine, opened before the engine is on its GPUs."""
    return find(profiles.choose().gpus)


@pytest.fixture(scope="session")
def running(meters: Meters) -> Iterator[Engine]:  # noqa: ARG001 - the order matters
    """The engine of the chosen profile."""
    with engine.start(profiles.choose()) as started:
        yield started
