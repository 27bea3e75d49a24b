# Finds LibTorch and makes the imported targets c10 and torch_cpu.
#
# Searched, in this order: DTORCH_TORCH_DIR (CMake variable, then environment variable); the folder that `make deps` fills;
# the torch of the python3 on the PATH. Each may be a folder with include/ and lib/, or one that holds the Python package torch.
# LibTorch's own TorchConfig.cmake isn't used: it demands a CUDA toolkit even for a program that runs on CPUs.
set(_dirs ${DTORCH_TORCH_DIR} $ENV{DTORCH_TORCH_DIR})
set(_deps $ENV{DTORCH_DEPS_DIR})
if(NOT _deps)
  set(_deps $ENV{HOME}/.cache/dtorch/deps)
endif()
if(NOT _dirs)
  set(_dirs ${_deps}/torch)
  if(NOT EXISTS ${_deps}/torch/torch/lib/libtorch_cpu.so)
    execute_process(COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE _python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND _dirs ${_python_torch})
  endif()
endif()
# A result of an earlier run counts only while it exists and lies where it is asked for now.
foreach(_result INCLUDE c10 torch_cpu)
  cmake_path(IS_PREFIX DTORCH_TORCH_DIR "${DTorchLibTorch_${_result}}" _inside)
  if(NOT EXISTS "${DTorchLibTorch_${_result}}" OR (DTORCH_TORCH_DIR AND NOT _inside))
    unset(DTorchLibTorch_${_result} CACHE)
  endif()
endforeach()
find_path(DTorchLibTorch_INCLUDE ATen/core/Tensor.h PATHS ${_dirs} PATH_SUFFIXES include torch/include NO_DEFAULT_PATH)
find_library(DTorchLibTorch_c10 c10 PATHS ${_dirs} PATH_SUFFIXES lib torch/lib NO_DEFAULT_PATH)
find_library(DTorchLibTorch_torch_cpu torch_cpu PATHS ${_dirs} PATH_SUFFIXES lib torch/lib NO_DEFAULT_PATH)
if(DTorchLibTorch_INCLUDE)
  set(_header ${DTorchLibTorch_INCLUDE}/torch/headeronly/version.h)
  if(NOT EXISTS ${_header})
    set(_header ${DTorchLibTorch_INCLUDE}/torch/csrc/api/include/torch/version.h)
  endif()
  file(STRINGS ${_header} _version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX MATCHALL " [0-9]+" _version "${_version}")
  string(REGEX REPLACE "[; ]+" "." _version "${_version}")
  string(SUBSTRING "${_version}" 1 -1 DTorchLibTorch_VERSION)
endif()
if(DTorchLibTorch_c10)
  file(STRINGS ${DTorchLibTorch_c10} _new_abi REGEX "_ZN3c105Error.*__cxx11" LIMIT_COUNT 1)
  if(NOT _new_abi)
    message(FATAL_ERROR "${DTorchLibTorch_c10} was built with the old C++ string ABI; DTorch needs the C++11 one (wheels of 2.7 and newer)")
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DTorchLibTorch
  REQUIRED_VARS DTorchLibTorch_torch_cpu DTorchLibTorch_c10 DTorchLibTorch_INCLUDE VERSION_VAR DTorchLibTorch_VERSION
  REASON_FAILURE_MESSAGE "LibTorch was looked for in: ${_dirs}. Run `make deps`, or set -DDTORCH_TORCH_DIR= to the folder of a torch that has include/ and lib/.")
mark_as_advanced(DTorchLibTorch_INCLUDE DTorchLibTorch_c10 DTorchLibTorch_torch_cpu)
if(DTorchLibTorch_FOUND AND NOT TARGET torch_cpu)
  # LibTorch ships an fmt of its own that doesn't fit the system's spdlog: the system's fmt must be found first, and a
  # folder of the system itself can't be put in front, so this one only points to it.
  find_path(DTorchLibTorch_FMT fmt/format.h)
  mark_as_advanced(DTorchLibTorch_FMT)
  if(DTorchLibTorch_FMT)
    set(_first ${CMAKE_BINARY_DIR}/system_fmt_first)
    file(MAKE_DIRECTORY ${_first})
    file(CREATE_LINK ${DTorchLibTorch_FMT}/fmt ${_first}/fmt SYMBOLIC)
  endif()
  foreach(_name c10 torch_cpu)
    add_library(${_name} SHARED IMPORTED GLOBAL)
    set_target_properties(${_name} PROPERTIES IMPORTED_LOCATION ${DTorchLibTorch_${_name}}
      INTERFACE_INCLUDE_DIRECTORIES "${_first};${DTorchLibTorch_INCLUDE}")
  endforeach()
  # Without it some narrow headers of LibTorch include those of all operators, which costs 4 s a file.
  set_property(TARGET torch_cpu PROPERTY INTERFACE_COMPILE_DEFINITIONS AT_PER_OPERATOR_HEADERS)
  set_property(TARGET torch_cpu PROPERTY INTERFACE_LINK_LIBRARIES c10)
endif()
