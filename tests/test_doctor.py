"""The doctor on this machine, and on a machine that lacks something."""

from dataclasses import replace

import pytest

from harness import doctor, vllm_names
from harness.doctor import Finding, Outcome
from harness.profiles import PROFILES

TINY = PROFILES["cpu-tiny"]


def examined(**changes: object) -> dict[str, Finding]:
    profile = replace(TINY, **changes)  # type: ignore[arg-type]
    return {finding.subject: finding for finding in doctor.examine(profile)}


def test_a_machine_that_can_run_the_default() -> None:
    findings = examined()
    assert not [f for f in findings.values() if f.outcome is Outcome.MISSING]
    assert "a chunk is 128 tokens" in findings["engine"].sentence
    assert "0.28.0" in findings["vLLM"].sentence
    assert {"processor", "GPU", "memory", "disk", "git", "asv machine", "subject"} <= set(findings)


def test_what_is_missing_is_said_and_the_engine_is_not_tried() -> None:
    findings = examined(host_bytes=1 << 50)
    assert findings["memory"].outcome is Outcome.MISSING
    assert "MiB of host memory" in findings["memory"].sentence
    assert findings["engine"].sentence.startswith("Not tried")


def test_sweep_that_does_not_fit_is_seen_beforehand() -> None:
    engine = examined(chunks=(2, 16))["engine"]
    assert engine.outcome is Outcome.MISSING
    assert "the context holds 2048" in engine.sentence


def test_missing_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_names, "installed_version", lambda: None)
    findings = examined()
    assert findings["vLLM"].outcome is Outcome.MISSING
    assert findings["engine"].sentence.startswith("Not tried")
