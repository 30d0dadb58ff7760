"""Where the project keeps what; it runs from its own checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASV_CONF = ROOT / "asv.conf.json"
SWEEPS = ROOT / "sweeps"
BENCH_LOG = ROOT / ".asv" / "bench.log"
