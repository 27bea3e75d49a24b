# Options, build type and compiler flags.
set(DTORCH_KERNELS torch CACHE STRING "torch: kernels through LibTorch; none: everything but the kernels, no LibTorch at all")
set_property(CACHE DTORCH_KERNELS PROPERTY STRINGS torch none)
set(DTORCH_SANITIZE "" CACHE STRING "Sanitizers, comma-separated: address, undefined, thread")
set(DTORCH_TORCH_DIR "" CACHE PATH "A LibTorch: a folder with include/ and lib/, or a folder that holds the Python package torch")
set(DTORCH_BIN_DIR ${CMAKE_BINARY_DIR}/bin CACHE PATH "Folder that receives the programs")
set(DTORCH_CUDA AUTO CACHE STRING "libdtorch_cuda.so: ON, OFF, or AUTO (where a CUDA toolkit is found that fits LibTorch)")
set_property(CACHE DTORCH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DTORCH_CUDA_DIR "" CACHE PATH "A CUDA toolkit: a folder with include/ and lib64/ or lib/")
option(DTORCH_TESTS "Build tests/" ON)
option(DTORCH_BENCH "Build bench/" ON)
option(DTORCH_FUZZ "Build tests/fuzz for libFuzzer (needs clang++) in place of the replay driver" OFF)
option(DTORCH_WERROR "Warnings in DTorch's own code are errors" ON)

if(NOT DTORCH_KERNELS MATCHES "^(torch|none)$")
  message(FATAL_ERROR "DTORCH_KERNELS is '${DTORCH_KERNELS}'; it must be torch or none")
endif()
if(NOT DTORCH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "DTORCH_CUDA is '${DTORCH_CUDA}'; it must be AUTO, ON or OFF")
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -fno-omit-frame-pointer -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g -fno-omit-frame-pointer")
# Programs find LibTorch and MPI where the build found them, built or installed.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Flags of our own code only; nothing of this is exported.
add_library(dtorch_flags INTERFACE)
# Source lines in messages are relative to the root, whatever folder the build ran in.
target_compile_options(dtorch_flags INTERFACE -Wall -Wextra -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(DTORCH_WERROR)
  target_compile_options(dtorch_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # False positives of GCC 12 inside inlined libstdc++ (GCC bugs 105651, 105329, 109224).
  target_compile_options(dtorch_flags INTERFACE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()

if(DTORCH_SANITIZE)
  string(REPLACE ";" "," DTORCH_SANITIZE_LIST "${DTORCH_SANITIZE}")
  if(DTORCH_SANITIZE_LIST MATCHES thread AND DTORCH_SANITIZE_LIST MATCHES address)
    message(FATAL_ERROR "DTORCH_SANITIZE: address and thread can't be combined")
  endif()
  # -O1 halves the time to compile; what the sanitizers find is the same.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1 -DNDEBUG")
  add_compile_options(-fsanitize=${DTORCH_SANITIZE_LIST} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DTORCH_SANITIZE_LIST})
  if(DTORCH_SANITIZE_LIST MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=vptr)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # The sanitizers' instrumentation makes these warn where nothing is wrong.
    target_compile_options(dtorch_flags INTERFACE -Wno-maybe-uninitialized -Wno-tsan)
  endif()
endif()

if(DTORCH_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(DTORCH_CCACHE ccache)
if(DTORCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need this sloppiness, and -fpch-preprocess from the compiler (DTorchRoom.cmake).
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${DTORCH_CCACHE})
endif()
