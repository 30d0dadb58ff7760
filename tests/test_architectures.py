"""The table of the bug on every architecture, each a real engine with a checkpoint of its own."""

from dataclasses import replace
from pathlib import Path

import pytest
import sweep_table

from harness import checkpoint, midsize, sweep
from harness.architectures import ARCHITECTURES
from harness.cells import grid
from harness.profiles import PROFILES
from harness.record import Record
from harness.vocabulary import Arm


def swept(name: str, folder: Path, samples: int) -> Record:
    profile = replace(PROFILES[name], samples=samples, cell_seconds=0.0)
    return sweep.run(profile, grid([2, 3]), folder / "swept", seed=0)


@pytest.mark.parametrize(
    ("name", "chunk", "attention"),
    [("cpu-granite", 128, True), ("cpu-mamba2", 16, False), ("cpu-mamba1", 16, False)],
)
def test_table(tmp_path: Path, name: str, chunk: int, attention: bool) -> None:
    record = swept(name, tmp_path, samples=2)
    assert record.header.chunk == chunk
    assert any(not group.recurrent for group in record.header.groups) == attention
    sweep_table.check(record, shipped=Arm.RELOAD_ALIGNED)


def test_drift_catches_what_tokens_hide(tmp_path: Path) -> None:
    """Falcon-H1: hardly a prompt shows the corruption in its tokens, and every one in its drift."""
    record = swept("cpu-falcon-h1", tmp_path, samples=4)
    sweep_table.check(record, shipped=Arm.RELOAD_ALIGNED)
    corrupted = [
        sample.arms[Arm.RELOAD_UNALIGNED]
        for cell, result in record.cells.items()
        if cell.is_exact_boundary
        for sample in result.samples
    ]
    assert len(corrupted) == 2 * 2 * 4
    assert sum(arm.wrong_tokens > 0 for arm in corrupted) < len(corrupted) / 4
    assert record.header.oracle is not None
    assert all(arm.logprob_drift > record.header.oracle.threshold for arm in corrupted)


def test_every_architecture_has_a_profile_and_a_digest() -> None:
    embedded = {p.architecture for p in PROFILES.values() if p.model is None}
    assert embedded == {*ARCHITECTURES, midsize.NAME} == set(checkpoint.DIGESTS)
