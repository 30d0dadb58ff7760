"""Which profile is run, what its engine is told, and the embedded checkpoint."""

import json
import shutil
from pathlib import Path

import pytest

from harness import checkpoint, nvml, profiles
from harness.errors import FixcostError
from harness.profiles import PROFILES


def test_machine_without_gpu_runs_the_embedded_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "names", lambda: ())
    assert profiles.choose() == PROFILES["cpu-tiny"]


def test_machine_with_gpu_runs_the_reports_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "names", lambda: ("NVIDIA H100",))
    assert profiles.choose().name == "nemotron-nano-9b-v2"


def test_option_comes_before_variable_before_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "names", lambda: ("NVIDIA H100",))
    monkeypatch.setenv("FIXCOST_PROFILE", "cpu-tiny")
    assert profiles.choose().name == "cpu-tiny"
    assert profiles.choose("nemotron-nano-9b-v2").name == "nemotron-nano-9b-v2"


def test_number_of_samples_by_option_and_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXCOST_SAMPLES", "3")
    assert profiles.choose("cpu-tiny").samples == 3
    assert profiles.choose("cpu-tiny", samples=5).samples == 5
    monkeypatch.setenv("FIXCOST_SAMPLES", "few")
    with pytest.raises(FixcostError, match="FIXCOST_SAMPLES must be a number above 0, not 'few'"):
        profiles.choose("cpu-tiny")


def test_unknown_profile_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        FixcostError, match="'gpu'; choose one of cpu-tiny, cpu-granite, cpu-falcon-h1, "
    ):
        profiles.choose("gpu")


def test_model_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FixcostError, match=r"holds no config\.json"):
        profiles.choose("cpu-tiny", str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("FIXCOST_MODEL", str(tmp_path))
    chosen = profiles.choose("cpu-tiny")
    assert chosen.model == str(tmp_path)
    assert profiles.engine_arguments(chosen)["model"] == str(tmp_path)


def test_gpu_profile_without_gpu_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "names", lambda: ())
    with pytest.raises(FixcostError, match=r"needs an NVIDIA GPU and its driver.*run profile cpu"):
        profiles.check_device(PROFILES["nemotron-nano-9b-v2"])


def test_engine_arguments_of_the_reports_own_case() -> None:
    arguments = profiles.engine_arguments(PROFILES["nemotron-nano-9b-v2"])
    transfer = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 16 * 1024**3},
    }
    assert arguments["model"] == "nvidia/NVIDIA-Nemotron-Nano-9B-v2"
    assert arguments["kv_transfer_config"] == transfer  # vLLM's own spec, with pinned memory
    assert arguments["mamba_cache_mode"] == "all"
    assert arguments["mamba_cache_dtype"] == arguments["mamba_ssm_cache_dtype"] == "float32"
    assert arguments["enable_prefix_caching"] is True
    assert arguments["gpu_memory_utilization"] == 0.85
    assert "kv_cache_memory_bytes" not in arguments
    assert PROFILES["nemotron-nano-9b-v2"].context >= 8 * 1408 + 1408 // 2 + 32


def test_engine_arguments_of_the_embedded_default() -> None:
    arguments = profiles.engine_arguments(PROFILES["cpu-tiny"])
    transfer = arguments["kv_transfer_config"]
    assert isinstance(transfer, dict)
    assert transfer["kv_connector_extra_config"]["spec_name"] == "HostOffloadingSpec"
    assert arguments["dtype"] == "float32"
    assert "gpu_memory_utilization" not in arguments


def test_hub_stays_untouched_for_local_checkpoints() -> None:
    assert profiles.engine_environment(PROFILES["cpu-tiny"])["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in profiles.engine_environment(PROFILES["nemotron-nano-9b-v2"])


def test_checkpoint_is_made_once_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = checkpoint.embedded("nemotron-h")
    weights = folder / "model.safetensors"
    made = weights.stat().st_mtime_ns
    assert checkpoint.embedded("nemotron-h") == folder
    assert weights.stat().st_mtime_ns == made
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    assert checkpoint.digest(folder) != checkpoint.DIGESTS["nemotron-h"]
    assert checkpoint.digest(checkpoint.embedded("nemotron-h")) == checkpoint.DIGESTS["nemotron-h"]
    assert json.loads((folder / "config.json").read_text())["model_type"] == "nemotron_h"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    shutil.rmtree(folder)


def test_checkpoint_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fixcost").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FixcostError, match="Cannot make the embedded checkpoint"):
        checkpoint.embedded("nemotron-h")
