#!/usr/bin/env bash
# Makes data/python_for_tests, a Python environment with what some tests read and write files with: gguf, h5py, numpy.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=data/python_for_tests
packages=(gguf==0.19.0 h5py==3.16.0 numpy)
if [ "$(cat "$folder/packages" 2> /dev/null)" = "${packages[*]}" ]; then
  echo "$folder is there"
  exit 0
fi
mkdir -p data
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet "${packages[@]}"
echo "${packages[*]}" > "$folder/packages"
echo "$folder"
