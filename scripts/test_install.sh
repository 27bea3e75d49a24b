#!/usr/bin/env bash
# Installs a build into a temporary prefix and builds a program outside the tree against it with find_package(dtorch),
# then runs that program alone and under mpirun.   scripts/test_install.sh BUILD_FOLDER EXAMPLE.cc
set -euo pipefail
build=$(realpath "$1")
example=$(realpath "$2")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cmake --install "$build" --prefix "$dir/prefix" > "$dir/install.log" || { cat "$dir/install.log"; exit 1; }
mkdir "$dir/program"
cp "$example" "$dir/program/main.cc"
cat > "$dir/program/CMakeLists.txt" << 'TEXT'
cmake_minimum_required(VERSION 3.25)
project(outside CXX)
find_package(dtorch REQUIRED)
add_executable(outside main.cc)
target_link_libraries(outside dtorch::dtorch)
TEXT
cd "$dir/program"
cmake -S . -B build -DCMAKE_PREFIX_PATH="$dir/prefix" > configure.log || { cat configure.log; exit 1; }
cmake --build build
timeout 120 build/outside
timeout 120 mpirun --oversubscribe --bind-to none -np 3 build/outside
