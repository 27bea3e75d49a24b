#!/usr/bin/env bash
# Installs what DTorch needs, and skips what is there.
#   scripts/deps.sh [--check] [build] [check] [fuzz] [cuda] [cuda_run]
# Groups: build (default: compile, run, test), check (clang-format for `make check`, Slurm for tests/slurm), fuzz (clang-16 for `make fuzz`),
# cuda (what libdtorch_cuda.so is built from, where no toolkit is), cuda_run (what LibTorch's CUDA half needs to run: on GPU nodes).
# --check only reports: exit code 1 when something is missing.
# Debian packages need root. LibTorch goes to $DTORCH_DEPS_DIR (default ~/.cache/dtorch/deps) without root, unless
# DTORCH_TORCH_DIR or the python3 on the PATH has one.
set -euo pipefail

deps_dir=${DTORCH_DEPS_DIR:-$HOME/.cache/dtorch/deps}
torch_wheels=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
# Of the toolkit that LibTorch was built with: headers and libcudart, and the compiler for kernels at run time.
cuda_wheels=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-nvrtc==13.0.88)
# What LibTorch's CUDA half loads on a node with GPUs.
cuda_run_wheels=(nvidia-cublas==13.1.0.3 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 nvidia-cufile==1.15.1.6
  nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0
  nvidia-nccl-cu13==2.28.9 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5)

check_only=0
groups=()
for argument in "$@"; do
  case $argument in
    --check) check_only=1 ;;
    build | check | fuzz | cuda | cuda_run) groups+=("$argument") ;;
    *) echo "deps: unknown argument '$argument'; known: --check build check fuzz cuda cuda_run" >&2; exit 2 ;;
  esac
done
[ ${#groups[@]} -gt 0 ] || groups=(build)

# One line a package: group, Debian package, how to see that it is there (a command, or a header in <>), what it is for.
packages="
build g++                            g++                               compiler, version 12 or newer
build cmake                          cmake                             version 3.25 or newer
build ninja-build                    ninja                             builds
build ccache                         ccache                            makes the second build quick
build python3                        python3                           lint, and pip
build python3-pip                    python3-pip                       brings LibTorch
build libopenmpi-dev                 mpicc                             Open MPI 4.1: headers
build openmpi-bin                    mpirun                            Open MPI 4.1: launcher
build libhdf5-dev                    <hdf5/serial/hdf5.h>|<hdf5.h>     HDF5, serial flavour
build libboost-program-options-dev   <boost/program_options.hpp>       command line; with it Boost's headers, for HTTP
build libflatbuffers-dev             <flatbuffers/flatbuffers.h>       wire form: headers
build flatbuffers-compiler           flatc                             wire form: compiler
build libconcurrentqueue-dev         <concurrentqueue/concurrentqueue.h>|<concurrentqueue.h>  queues between threads
build nlohmann-json3-dev             <nlohmann/json.hpp>               JSON
build libxxhash-dev                  <xxhash.h>                        hashes
build libpcre2-dev                   <pcre2.h>                         Unicode classes of the tokenizer
build libfmt-dev                     <fmt/format.h>                    text
build libspdlog-dev                  <spdlog/spdlog.h>                 log
build libgtest-dev                   <gtest/gtest.h>                   tests
build bible-kjv                      bible                             the text that make run trains on
check clang-format                   clang-format                      version 14
check valgrind                       valgrind                          callgrind, for instruction counts
check slurmctld                      slurmctld                         tests/slurm: a private Slurm of virtual nodes
check slurmd                         slurmd                            the same
check slurm-client                   sbatch                            the same
check munge                          munged                            the same
check iproute2                       ip                                the same: network devices of virtual nodes
fuzz  clang-16                       clang++-16                        libFuzzer (15 and newer know std::source_location)
fuzz  libclang-rt-16-dev             clang++-16:fuzzer                 libFuzzer's runtime
"

have_header() {  # <header>|<header>: one of them is found by the compiler
  command -v g++ > /dev/null || return 1
  printf '#if !(%s)\n#error missing\n#endif\n' "$(sed 's/</__has_include(</g; s/>/>)/g; s/|/ || /g' <<< "$1")" |
    g++ -std=c++20 -x c++ -fsyntax-only - 2> /dev/null
}
have() {
  case $1 in
    clang++-16:fuzzer) compgen -G '/usr/lib/llvm-16/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' > /dev/null ;;
    "<"*) have_header "$1" ;;
    python3-pip) python3 -m pip --version > /dev/null 2>&1 ;;
    cmake) command -v cmake > /dev/null &&
      [ "$(printf '3.25\n%s\n' "$(cmake --version | sed -n 's/cmake version //p')" | sort -V | head -n 1)" = 3.25 ] ;;
    *) command -v "$1" > /dev/null ;;
  esac
}
is_torch() {  # a folder with include/ and lib/, or one that holds the Python package
  local dir
  for dir in "$1" "$1/torch"; do
    [ -e "$dir/lib/libtorch_cpu.so" ] && [ -e "$dir/include/ATen/core/Tensor.h" ] && return 0
  done
  return 1
}
find_torch() {
  if [ -n "${DTORCH_TORCH_DIR:-}" ]; then
    is_torch "$DTORCH_TORCH_DIR" && echo "$DTORCH_TORCH_DIR"
    return
  fi
  is_torch "$deps_dir/torch" && echo "$deps_dir/torch" && return
  local from_python
  from_python=$(python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])" 2> /dev/null) || return 1
  is_torch "$from_python" && echo "$from_python"
}
find_toolkit() {  # one that has what libdtorch_cuda.so is built from
  local dir
  for dir in "${DTORCH_CUDA_DIR:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda "$deps_dir/cuda/nvidia/cu13"; do
    [ -n "$dir" ] && [ -e "$dir/include/crt/host_config.h" ] && [ -e "$dir/include/cuda_runtime_api.h" ] && echo "$dir" && return
  done
  return 1
}
wants() { [[ " ${groups[*]} " == *" $1 "* ]]; }
# add_wheels <folder> <wheels...>: puts them together in a folder, beside what is there.
add_wheels() {
  local folder=$1 partial
  shift
  mkdir -p "$folder"
  partial=$(mktemp -d "$deps_dir/wheels.XXXXXX")
  # --target leaves the system's Python alone; pip on newer systems still wants to be told so. The wheels' Python version
  # doesn't matter here: only headers and libraries are used.
  local options=(--quiet --no-deps --no-cache-dir --only-binary=:all: --root-user-action=ignore --target "$partial")
  python3 -m pip install --help | grep -q -- --break-system-packages && options+=(--break-system-packages)
  python3 -m pip install "${options[@]}" "$@"
  cp -rl "$partial/." "$folder/"
  rm -rf "$partial"
}

torch=$(find_torch || true)
if [ -n "${DTORCH_TORCH_DIR:-}" ] && [ -z "$torch" ]; then
  echo "deps: DTORCH_TORCH_DIR=$DTORCH_TORCH_DIR holds no LibTorch (include/ATen and lib/libtorch_cpu.so)" >&2
  exit 1
fi

if wants cuda; then
  if toolkit=$(find_toolkit); then
    echo "deps: the CUDA toolkit is $toolkit"
  elif [ $check_only = 1 ]; then
    exit 1
  else
    echo "deps: CUDA: installing ${cuda_wheels[*]} into $deps_dir/cuda (some 95 MB to download)"
    add_wheels "$deps_dir/cuda" "${cuda_wheels[@]}"
  fi
fi
if wants cuda_run; then
  if [ -z "$torch" ] || [ "$torch" != "$deps_dir/torch" ]; then
    echo "deps: cuda_run completes the LibTorch in $deps_dir/torch; yours is '${torch:-missing}', whose own Python environment brings them" >&2
    exit 1
  fi
  echo "deps: CUDA: installing ${cuda_run_wheels[*]} beside LibTorch (some 1.9 GB to download)"
  add_wheels "$deps_dir/torch" "${cuda_run_wheels[@]}"
fi
if ! wants build && ! wants check && ! wants fuzz; then exit 0; fi

missing=()
missing_text=""
while read -r group package probe purpose; do
  [ -n "$group" ] && wants "$group" || continue
  have "$probe" && continue
  [ "$package" = python3-pip ] && [ -n "$torch" ] && continue
  missing+=("$package")
  missing_text+=$(printf '  %-30s %s' "$package" "$purpose")$'\n'
done <<< "$packages"

if [ $check_only = 1 ]; then
  [ ${#missing[@]} -eq 0 ] && [ -n "$torch" ]
  exit
fi

if [ ${#missing[@]} -eq 0 ]; then
  echo "deps: all Debian packages or their equivalents are there"
else
  printf 'deps: missing\n%s' "$missing_text"
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "deps: apt-get install ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -y -q --no-install-recommends "${missing[@]}"
  else
    cat >&2 << TEXT
deps: these need root. On Debian, have the administrator run
    apt-get install --no-install-recommends ${missing[*]}
  On a cluster load the modules that bring them, for example
    module load gcc cmake ninja openmpi hdf5 boost
  and put headers and programs from elsewhere on CPATH, LIBRARY_PATH, CMAKE_PREFIX_PATH and PATH.
  (bible-kjv is needed by 'make run' alone; 'dtorch_app prepare --text FILE' takes any UTF-8 text in its place.)
TEXT
    blocking=()
    for package in "${missing[@]}"; do
      case $package in bible-kjv | ccache | ninja-build | slurm* | munge | iproute2) ;; *) blocking+=("$package") ;; esac
    done
    [ ${#blocking[@]} -eq 0 ] || exit 1
  fi
fi

[ -n "$torch" ] || torch=$(find_torch || true)
if [ -n "$torch" ]; then
  echo "deps: LibTorch is $torch"
  exit 0
fi
echo "deps: LibTorch: installing ${torch_wheels[*]} into $deps_dir/torch (some 530 MB to download, 1.2 GB on disk)"
echo "      (to use one that you have: make DTORCH_TORCH_DIR=/path/to/torch)"
rm -rf "$deps_dir/torch.partial"
add_wheels "$deps_dir/torch.partial" "${torch_wheels[@]}"
is_torch "$deps_dir/torch.partial" || { echo "deps: the wheels didn't bring a LibTorch" >&2; exit 1; }
rm -rf "$deps_dir/torch"
mv "$deps_dir/torch.partial" "$deps_dir/torch"
echo "deps: LibTorch is $deps_dir/torch"
