#!/usr/bin/env bash
# Installs what DTorch needs, and skips what is there.
#   scripts/deps.sh [--check] [build] [check] [fuzz]
# Groups: build (default: compile, run, test), check (clang-format for `make check`, Slurm for tests/slurm), fuzz (clang-16 for `make fuzz`).
# --check only reports: exit code 1 when something is missing.
# Debian packages need root. LibTorch goes to $DTORCH_DEPS_DIR (default ~/.cache/dtorch/deps) without root, unless
# DTORCH_TORCH_DIR or the python3 on the PATH has one.
set -euo pipefail

deps_dir=${DTORCH_DEPS_DIR:-$HOME/.cache/dtorch/deps}
torch_wheels=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)

check_only=0
groups=()
for argument in "$@"; do
  case $argument in
    --check) check_only=1 ;;
    build | check | fuzz) groups+=("$argument") ;;
    *) echo "deps: unknown argument '$argument'; known: --check build check fuzz" >&2; exit 2 ;;
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
wants() { [[ " ${groups[*]} " == *" $1 "* ]]; }

torch=$(find_torch || true)
if [ -n "${DTORCH_TORCH_DIR:-}" ] && [ -z "$torch" ]; then
  echo "deps: DTORCH_TORCH_DIR=$DTORCH_TORCH_DIR holds no LibTorch (include/ATen and lib/libtorch_cpu.so)" >&2
  exit 1
fi

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
mkdir -p "$deps_dir"
rm -rf "$deps_dir/torch.partial"
# --target leaves the system's Python alone; pip on newer systems still wants to be told so. The wheels' Python version
# doesn't matter here: only headers and libraries are used.
options=(--quiet --no-deps --no-cache-dir --only-binary=:all: --root-user-action=ignore --target "$deps_dir/torch.partial")
python3 -m pip install --help | grep -q -- --break-system-packages && options+=(--break-system-packages)
python3 -m pip install "${options[@]}" "${torch_wheels[@]}"
is_torch "$deps_dir/torch.partial" || { echo "deps: the wheels didn't bring a LibTorch" >&2; exit 1; }
rm -rf "$deps_dir/torch"
mv "$deps_dir/torch.partial" "$deps_dir/torch"
echo "deps: LibTorch is $deps_dir/torch"
