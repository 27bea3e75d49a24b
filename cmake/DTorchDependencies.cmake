# One target per outside library ("door"). They hold plain paths, are installed with DTorch, and their headers are system
# headers, so a program outside the tree needs no find module for MPI or HDF5.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_path(DTORCH_HDF5_INCLUDE hdf5.h PATH_SUFFIXES hdf5/serial REQUIRED)
find_library(DTORCH_HDF5_LIBRARY NAMES hdf5_serial hdf5 REQUIRED)
find_library(DTORCH_HDF5_HL_LIBRARY NAMES hdf5_serial_hl hdf5_hl REQUIRED)
find_path(DTORCH_PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(DTORCH_PCRE2_LIBRARY pcre2-8 REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)
find_path(DTORCH_FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h REQUIRED)
find_program(DTORCH_FLATC flatc REQUIRED)
find_path(DTORCH_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(DTORCH_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
mark_as_advanced(DTORCH_HDF5_INCLUDE DTORCH_HDF5_LIBRARY DTORCH_HDF5_HL_LIBRARY DTORCH_FLATBUFFERS_INCLUDE DTORCH_FLATC
                 DTORCH_XXHASH_INCLUDE DTORCH_JSON_INCLUDE DTORCH_PCRE2_INCLUDE DTORCH_PCRE2_LIBRARY)

set(DTORCH_EXPORTED_TARGETS "")

# dtorch_door(<name> [INCLUDES dir...] [LIBRARIES lib...] [DEFINITIONS def...]) makes dtorch_door_<name>.
function(dtorch_door name)
  cmake_parse_arguments(ARG "" "" "INCLUDES;LIBRARIES;DEFINITIONS" ${ARGN})
  set(target dtorch_door_${name})
  add_library(${target} INTERFACE)
  foreach(dir IN LISTS ARG_INCLUDES)
    target_include_directories(${target} SYSTEM INTERFACE $<BUILD_INTERFACE:${dir}>)
  endforeach()
  target_link_libraries(${target} INTERFACE ${ARG_LIBRARIES})
  target_compile_definitions(${target} INTERFACE ${ARG_DEFINITIONS})
  set_property(GLOBAL APPEND PROPERTY DTORCH_EXPORTED_TARGETS ${target})
endfunction()

dtorch_door(mpi INCLUDES ${MPI_C_INCLUDE_DIRS} LIBRARIES ${MPI_C_LIBRARIES} DEFINITIONS OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
dtorch_door(hdf5 INCLUDES ${DTORCH_HDF5_INCLUDE} LIBRARIES ${DTORCH_HDF5_HL_LIBRARY} ${DTORCH_HDF5_LIBRARY})
dtorch_door(pcre2 INCLUDES ${DTORCH_PCRE2_INCLUDE} LIBRARIES ${DTORCH_PCRE2_LIBRARY})
get_target_property(boost_library Boost::program_options IMPORTED_LOCATION_RELEASE)
if(NOT boost_library)
  get_target_property(boost_library Boost::program_options IMPORTED_LOCATION)
endif()
dtorch_door(program_options INCLUDES ${Boost_INCLUDE_DIRS} LIBRARIES ${boost_library} DEFINITIONS BOOST_PROGRAM_OPTIONS_DYN_LINK)
# Asio and Beast, HTTP for the metrics: headers only. Debian's libboost-program-options-dev brings them.
dtorch_door(boost_headers INCLUDES ${Boost_INCLUDE_DIRS})
# Small header-only or system libraries that every room may use.
dtorch_door(common INCLUDES ${DTORCH_FLATBUFFERS_INCLUDE} ${DTORCH_XXHASH_INCLUDE} ${DTORCH_JSON_INCLUDE}
            LIBRARIES spdlog::spdlog fmt::fmt Threads::Threads)

# LibTorch's own targets come from the find module, here and in installed DTorch alike.
add_library(dtorch_door_torch INTERFACE)
set_property(GLOBAL APPEND PROPERTY DTORCH_EXPORTED_TARGETS dtorch_door_torch)
if(DTORCH_KERNELS STREQUAL torch)
  find_package(DTorchLibTorch REQUIRED)
  target_link_libraries(dtorch_door_torch INTERFACE torch_cpu c10)
  # LibTorch's loops (ATen/native/DispatchStub.h) are compiled once for each kind of CPU, and their header has to be told
  # for which. This LibTorch says by its symbols.
  include(CheckCXXSourceCompiles)
  foreach(kinds "AVX512;AVX2" "AVX2" "SVE256" "NONE")
    string(MAKE_C_IDENTIFIER "DTORCH_ATEN_LOOPS_${kinds}" found)
    list(TRANSFORM kinds REPLACE "(.+)" "HAVE_\\1_CPU_DEFINITION" OUTPUT_VARIABLE definitions)
    list(TRANSFORM definitions PREPEND "-D" OUTPUT_VARIABLE CMAKE_REQUIRED_DEFINITIONS)
    set(CMAKE_REQUIRED_LIBRARIES torch_cpu c10)
    check_cxx_source_compiles("
      #include <ATen/native/TensorIterator.h>
      #include <ATen/native/UnaryOps.h>
      int main() { at::TensorIterator iterator; at::native::exp_stub(at::kCPU, iterator); }" ${found})
    if(${found})
      target_compile_definitions(dtorch_door_torch INTERFACE ${definitions})
      break()
    endif()
  endforeach()
  unset(CMAKE_REQUIRED_DEFINITIONS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(NOT ${found})
    message(FATAL_ERROR "No way was found to call the loops of this LibTorch (at::native::exp_stub)")
  endif()
endif()
