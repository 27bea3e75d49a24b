#!/usr/bin/env bash
# Trains a byte-level Llama on the King James text with one client and two Sub-Controllers of two devices each, then
# continues a verse from the checkpoint.   scripts/run_kjv.sh BUILD_FOLDER [more options of train]
# Environment: NP (ranks, default 3), LAYOUT (default "--devices 4 --dp 2 --tp 2"), RUN (default runs/kjv).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
shift || true
app=$build/bin/dtorch_app
run=${RUN:-runs/kjv}
layout=${LAYOUT:---devices 4 --dp 2 --tp 2}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

text=data/kjv.txt
sha256=cd45f0c9cedab8e4439bd6486c8952c77cc8b0ecc5d1f6ae3513f2039f47229d
mkdir -p data "$run"
if ! echo "$sha256  $text" | sha256sum --check --status 2> /dev/null; then
  echo "Writing the King James text to $text"
  bible -f Gen1:1-Rev22:21 > "$text.partial"
  [ "$(stat -c %s "$text.partial")" = 4404412 ] && echo "$sha256  $text.partial" | sha256sum --check --status || {
    echo "The text of this 'bible' isn't the one expected (4404412 bytes, sha256 $sha256): $text.partial" >&2
    exit 1
  }
  mv "$text.partial" "$text"
fi

"$app" prepare --text "$text" --out data/kjv.h5
# shellcheck disable=SC2086  # the layout is several words
mpirun --oversubscribe --bind-to none -np "${NP:-3}" "$app" train $layout --data data/kjv.h5 --checkpoint-dir "$run" \
  --metrics "$run/metrics.jsonl" "$@"
"$app" generate --checkpoint "$run" --prompt "And God said, "
