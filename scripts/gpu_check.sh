#!/usr/bin/env bash
# Check on a machine with a GPU what cannot be checked elsewhere: scripts/gpu_check.sh [FOLDER]
#
# At most 8 minutes and no network; prints a short table and leaves it, with the record of the
# cells, in FOLDER (by default gpu-check). Python 3.11 or 3.12 with torch, nvidia-ml-py and NumPy
# is enough for the meters and the copies; with vLLM installed an engine is started as well.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-gpu-check}
mkdir -p "$folder"
for python in "${PYTHON:-}" .venv/bin/python python3.12 python3.11 python3; do
  [[ -n $python ]] && command -v "$python" >/dev/null && break
done
set +e
timeout 480 "$python" -m harness.gpu_check "$folder" 2>"$folder/log.txt" | tee "$folder/table.txt"
code=${PIPESTATUS[0]}
set -e
[[ $code -eq 124 ]] && echo "It took longer than 8 minutes and was stopped."
exit "$code"
