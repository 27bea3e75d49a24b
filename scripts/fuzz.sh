#!/usr/bin/env bash
# Runs every libFuzzer program of a build for some seconds each, from the seeds in tests/fuzz/seeds/.
#   scripts/fuzz.sh BUILD_FOLDER SECONDS
# New inputs are kept in BUILD_FOLDER/corpus/; an input that fails stays in BUILD_FOLDER/findings/.
set -euo pipefail
build=$1
seconds=$2
cd "$(dirname "$0")/.."
mkdir -p "$build/findings"
count=0
for program in "$build"/bin/fuzz_*; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  subject=${name#fuzz_}
  mkdir -p "$build/corpus/$subject"
  seeds=()
  [ -d "tests/fuzz/seeds/$subject" ] && seeds=("tests/fuzz/seeds/$subject")
  echo "== $name, $seconds s"
  "$program" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$name." "$build/corpus/$subject" "${seeds[@]}" 2>&1 | tail -n 12
  count=$((count + 1))
done
echo "fuzz: $count targets, no findings"
