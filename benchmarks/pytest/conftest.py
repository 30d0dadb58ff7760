"""One engine for all benchmarks of a session."""

from collections.abc import Iterator

import pytest

from harness import engine, profiles
from harness.engine import Engine


@pytest.fixture(scope="session")
def running() -> Iterator[Engine]:
    """The engine of the chosen profile."""
    with engine.start(profiles.choose()) as started:
        yield started
