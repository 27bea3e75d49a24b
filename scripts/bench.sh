#!/usr/bin/env bash
# Runs every benchmark of a build; JSON lines go to the terminal and to BUILD_FOLDER/bench.jsonl.
#   scripts/bench.sh BUILD_FOLDER
# bench_dispatch also runs under mpirun with 2 and 3 ranks (it names its figures .np2 and .np3 there), and without templates (.loose).
set -euo pipefail
build=$1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
: > "$build/bench.jsonl"
for program in "$build"/bin/bench_*; do
  [ -x "$program" ] || continue
  echo "== $program" >&2
  "$program" | tee -a "$build/bench.jsonl"
  [ "$(basename "$program")" = bench_dispatch ] || continue
  DTORCH_TEMPLATES=off "$program" | tee -a "$build/bench.jsonl"
  for ranks in 2 3; do
    mpirun --oversubscribe --bind-to none -np $ranks "$program" | tee -a "$build/bench.jsonl"
  done
done
