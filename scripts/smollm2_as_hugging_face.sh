#!/usr/bin/env bash
# Writes data/hugging_face/one/ and data/hugging_face/sharded/: the weights of data/SmolLM2-135M-Instruct.Q4_1.gguf, decoded
# to float32, under Hugging Face's names, as one safetensors file and as three with an index: for tests of that reader.
# Decoded by the Python package gguf.
set -euo pipefail
cd "$(dirname "$0")/.."
out=data/hugging_face
if [ -e "$out/done" ]; then
  echo "$out is there"
  exit 0
fi
scripts/fetch_smollm2.sh
scripts/python_for_tests.sh
rm -rf "$out"
data/python_for_tests/bin/python scripts/gguf_to_hugging_face.py data/SmolLM2-135M-Instruct.Q4_1.gguf "$out"
touch "$out/done"
echo "$out"
