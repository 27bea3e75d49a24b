#!/usr/bin/env bash
# Installs a build into a temporary prefix and builds programs outside the tree against it with find_package(dtorch),
# then runs them alone and under mpirun; one with operators of its own also has them checked.
#   scripts/test_install.sh BUILD_FOLDER EXAMPLE.cc...
set -euo pipefail
build=$(realpath "$1")
shift
examples=()
for example in "$@"; do examples+=("$(realpath "$example")"); done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cmake --install "$build" --prefix "$dir/prefix" > "$dir/install.log" || { cat "$dir/install.log"; exit 1; }
mkdir "$dir/program"
cat > "$dir/program/CMakeLists.txt" << 'TEXT'
cmake_minimum_required(VERSION 3.25)
project(outside CXX)
find_package(dtorch REQUIRED)
TEXT
for example in "${examples[@]}"; do
  name=$(basename "$example" .cc)
  cp "$example" "$dir/program/"
  libraries=dtorch::dtorch
  if grep -q 'dtorch/kernel\.h' "$example"; then libraries="dtorch::kernel dtorch::checker"; fi
  printf 'add_executable(%s %s.cc)\ntarget_link_libraries(%s %s)\n' "$name" "$name" "$name" "$libraries" >> "$dir/program/CMakeLists.txt"
done
cd "$dir/program"
cmake -S . -B build -DCMAKE_PREFIX_PATH="$dir/prefix" > configure.log || { cat configure.log; exit 1; }
cmake --build build
mpirun_np3=(timeout 120 mpirun --oversubscribe --bind-to none -np 3)
for example in "${examples[@]}"; do
  program=build/$(basename "$example" .cc)
  timeout 120 "$program"
  "${mpirun_np3[@]}" "$program"
  if grep -q 'dtorch/checker\.h' "$example"; then
    timeout 120 "$program" check
    "${mpirun_np3[@]}" "$program" check
  fi
done
