#!/usr/bin/env bash
# Trains the same Llama from the same weights with PyTorch (one process of two threads; FSDP2 in two gloo processes) and
# with DTorch on two devices (data parallel; ZeRO 3), in interleaved slices. One JSON object a line.
#   bench/train_vs_torch.sh [BUILD_FOLDER] [ROUNDS] [STEPS A SLICE]
# PyTorch goes into a virtual environment of its own, DTORCH_BENCH_VENV (default BUILD_FOLDER/train_venv), unless that
# already has it.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build} rounds=${2:-7} steps=${3:-4}
venv=${DTORCH_BENCH_VENV:-$build/train_venv}
if ! "$venv/bin/python" -c "import torch" 2> /dev/null; then
  python3 -m venv "$venv" >&2
  # The version of the LibTorch that DTorch is built with (scripts/deps.sh).
  "$venv/bin/pip" install --quiet torch==2.11.0 numpy >&2
fi
exec "$venv/bin/python" bench/train_vs_torch.py "$build" "$rounds" "$steps"
