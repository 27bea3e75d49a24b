#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the CUDA backend, runs its tests and benchmarks, writes a report.
#   scripts/gpu_check.sh [--build FOLDER] [--report FILE] [--quick] [--no-build]
# Needs no network where LibTorch is: takes the torch of DTORCH_TORCH_DIR, of `make deps`, or of the python3 on the PATH, the toolkit
# of CUDA_HOME, /usr/local/cuda or `make deps_cuda`, and mpirun where there is one (else everything runs as one process).
# --quick: tests only. Exit code 0 only if nothing failed; steps that can't run here are told with their reason.
set -uo pipefail
cd "$(dirname "$0")/.."

build=build/gpu
report=
quick=0
compile=1
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift ;;
    --report) report=$2; shift ;;
    --quick) quick=1 ;;
    --no-build) compile=0 ;;
    *) echo "gpu_check: unknown argument '$1'; known: --build FOLDER, --report FILE, --quick, --no-build" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$build/gpu_check"
report=${report:-$build/gpu_check/report.md}
jobs=${JOBS:-$(nproc)}
passed=0
skipped=0
failed=()
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DTORCH_BIN_DIR=$PWD/$build/bin DTORCH_SOURCE_DIR=$PWD
case $build in /*) export DTORCH_BIN_DIR=$build/bin ;; esac

say() { echo "$*" | tee -a "$report"; }
block() {  # block <text>: as it is, in the report
  { echo '```'; echo "$1"; echo '```'; } >> "$report"
}
step() {  # step <limit in s> <name> <command...>: its output goes to a file, the end of it into the report
  local limit=$1 name=$2 begin=$SECONDS code log
  shift 2
  log=$build/gpu_check/$(tr -c 'a-z0-9\n' '_' <<< "${name,,}").log
  timeout "$limit" "$@" > "$log" 2>&1 < /dev/null
  code=$?
  if [ $code = 0 ]; then
    passed=$((passed + 1))
    say "- $name: passed in $((SECONDS - begin)) s"
    block "$(grep -E '^\{|passed|PASSED|SKIPPED|tests ran|wrong|operators/s|skipped' "$log" | tail -n 40)"
  else
    failed+=("$name")
    say "- $name: FAILED (exit code $code, $((SECONDS - begin)) s): \`$*\`"
    block "$(tail -n 40 "$log")"
  fi
}
skip() {
  skipped=$((skipped + 1))
  say "- $1: not run, $2"
}

: > "$report"
say "# GPU check, $(date -u +%Y-%m-%dT%H:%MZ), $(hostname)"
say ""
say "DTorch $(git rev-parse --short HEAD 2> /dev/null || echo '(no git)'), $(uname -sr), $(nproc) cores"
say ""
say "## Machine"
if command -v nvidia-smi > /dev/null; then
  block "$(nvidia-smi --query-gpu=index,name,memory.total,driver_version,pci.bus_id --format=csv 2>&1; nvidia-smi topo -m 2>&1)"
else
  say "nvidia-smi isn't here."
fi
block "$(command -v mpirun > /dev/null && mpirun --version | head -n 1; cmake --version | head -n 1; g++ --version | head -n 1
  python3 -c 'import torch; print("python torch", torch.__version__, torch.cuda.is_available())' 2>&1 | tail -n 1)"

say ""
say "## Build"
if [ $compile = 1 ]; then
  generator=()
  command -v ninja > /dev/null && [ ! -e "$build/Makefile" ] && generator=(-G Ninja)
  step 600 "configure" cmake -S . -B "$build" "${generator[@]}" -DDTORCH_CUDA=ON
  step 5400 "compile" cmake --build "$build" -j "$jobs"
fi
if [ ! -x "$build/bin/dtorch_app" ] || [ ! -e "$build/lib/libdtorch_cuda.so" ]; then
  say ""
  say "Nothing can be run: $build has no dtorch_app or no libdtorch_cuda.so."
  echo "0 passed, 1 failed"
  exit 1
fi

app=$build/bin/dtorch_app
say ""
say "## Devices"
step 120 "devices" "$app" devices
# The one sentence that says why there is no GPU ends the check.
if ! sentence=$("$app" devices --device cuda 2>&1 > /dev/null); then
  say ""
  say "No GPU can be used: $sentence"
  failed+=("devices --device cuda")
  say ""
  say "$passed passed, ${#failed[@]} failed"
  exit 1
fi
gpus=$(nvidia-smi --list-gpus 2> /dev/null | wc -l)
[ "$gpus" -gt 0 ] || gpus=1

say ""
say "## Tests"
step 600 "linkage and sentences" "$build/bin/test_gpu"
step 1200 "kernel sources" "$build/bin/test_kernel_source"
step 1800 "CUDA backend" "$build/bin/test_cuda"
# Programs take the kind of device from the environment; several virtual devices share a GPU.
for devices in 1 4; do
  step 1800 "random programs, $devices device(s)" env DTORCH_DEVICE=cuda DTORCH_DEVICES=$devices "$build/bin/random_programs" --count 100 --seed 7
done
step 3600 "every operator against one device" env DTORCH_DEVICE=cuda "$build/bin/check_operators" --json

data=$build/gpu_check/text.h5
text=$build/gpu_check/text.txt
if command -v bible > /dev/null; then bible -f Gen1:1-Rev22:21 > "$text"; else cat README.md docs/*.md > "$text"; fi
step 300 "prepare a text" "$app" prepare --text "$text" --out "$data"
train=("$app" train --data "$data" --steps 20 --save-every 0)
step 900 "training, 1 device" "${train[@]}" --device cuda --devices 1
step 900 "training, 4 virtual devices, dp 2 x tp 2" "${train[@]}" --device cuda --devices 4 --dp 2 --tp 2
if [ "$gpus" -gt 1 ]; then
  step 900 "training, $gpus GPUs, ZeRO 3" "${train[@]}" --device cuda --devices "$gpus" --dp "$gpus" --zero 3
else
  skip "training on several GPUs" "one GPU is visible"
fi
if command -v mpirun > /dev/null; then
  step 900 "training under mpirun" mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --device cuda --devices 1
else
  skip "training under mpirun" "mpirun isn't here"
fi

if [ $quick = 0 ]; then
  say ""
  say "## Figures"
  for program in dispatch fusion streams templates overlap train; do
    step 1200 "bench_$program" env DTORCH_DEVICE=cuda "$build/bin/bench_$program"
  done
  if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
    step 1200 "PyTorch, eager and compiled" python3 bench/train_torch.py cuda
  else
    skip "PyTorch beside it" "the python3 on the PATH has no torch that sees a GPU"
  fi
fi

say ""
say "$passed passed, ${#failed[@]} failed, $skipped not run"
for name in "${failed[@]+"${failed[@]}"}"; do say "- failed: $name"; done
echo "report: $report"
[ ${#failed[@]} = 0 ]
