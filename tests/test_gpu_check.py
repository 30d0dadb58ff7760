"""The script for a GPU machine, on one without a GPU and on one that seems to have one."""

import os
import subprocess
import sys
from pathlib import Path

from harness import nvml
from tests.standin import compile_driver

ROOT = Path(__file__).parents[1]


def check(folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    command = [str(ROOT / "scripts" / "gpu_check.sh"), str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    if nvml.names():
        return  # with one it runs for minutes: by hand
    done = check(tmp_path)
    assert done.returncode == 2
    assert "GPU          FAILED   FixcostError: " in done.stdout
    assert (tmp_path / "table.txt").read_text() == done.stdout


def test_meters_are_found_without_torch_seeing_the_gpu(tmp_path: Path) -> None:
    if nvml.names():
        return
    compile_driver(tmp_path)
    done = check(tmp_path, LD_LIBRARY_PATH=str(tmp_path), STANDIN_WATTS="250")
    assert "GPU 0: Stand-in H100, 40 degrees, 250.0 W" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "GPU 0 moves every" in line]
    assert 15 < float(line.split()[-2]) < 40 and line.startswith("meters       ok")
    for step in ("known load", "bandwidth", "eager", "CUDA graphs"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(step)]
        assert "FAILED" in line
    assert done.returncode == 1


def test_missing_packages_are_named(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from harness.gpu_check import main; "
    bare = [sys.executable, "-S", "-c", f"{code}sys.exit(main(Path({str(tmp_path)!r})))"]
    done = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "packages     missing" in done.stdout and "torch, vllm" in done.stdout
    assert "Traceback" not in done.stderr
