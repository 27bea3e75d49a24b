# dtorch_room(<target> [DEPS target...] [DOORS name...] [ATEN])
#
# Makes the room's library from the *.cc (and *.fbs) of the current folder; sources are globbed, so adding a file needs no edit.
# *_aten.cc belong to DTORCH_KERNELS=torch only, *_plain.cc to DTORCH_KERNELS=none only. A room without sources is an
# interface library. DEPS are rooms before this one. DOORS are outside libraries that only this room sees.
# ATEN: the room's sources may include LibTorch's narrow headers.
function(dtorch_room target)
  cmake_parse_arguments(ARG "ATEN" "" "DEPS;DOORS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  file(GLOB schemas CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.fbs)
  if(DTORCH_KERNELS STREQUAL torch)
    list(FILTER sources EXCLUDE REGEX "_plain\\.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "_aten\\.cc$")
  endif()
  dtorch_compile_schemas(generated ${schemas})
  if(sources)
    add_library(${target} STATIC ${sources} ${generated})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:dtorch_flags>)
    foreach(door IN LISTS ARG_DOORS)
      target_link_libraries(${target} PRIVATE dtorch_door_${door})
    endforeach()
    if(ARG_ATEN AND DTORCH_KERNELS STREQUAL torch)
      target_link_libraries(${target} PRIVATE dtorch_door_torch)
    endif()
    if(ARG_ATEN)
      dtorch_use_pch(${target} aten)
    else()
      dtorch_use_pch(${target} plain)
    endif()
  else()
    add_library(${target} INTERFACE ${generated})
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} ${ARG_DEPS} dtorch_door_common)
  if(schemas)
    target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${DTORCH_GENERATED_DIR}>)
  endif()
  set_property(GLOBAL APPEND PROPERTY DTORCH_EXPORTED_TARGETS ${target})
endfunction()

set(DTORCH_GENERATED_DIR ${CMAKE_BINARY_DIR}/generated)

# Compiles each x.fbs to <build>/generated/<room>/x_generated.h, included as "<room>/x_generated.h".
function(dtorch_compile_schemas out)
  file(RELATIVE_PATH room ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(headers "")
  foreach(schema IN LISTS ARGN)
    get_filename_component(name ${schema} NAME_WE)
    set(header ${DTORCH_GENERATED_DIR}/${room}/${name}_generated.h)
    add_custom_command(OUTPUT ${header}
      COMMAND ${DTORCH_FLATC} --cpp --cpp-std c++17 --scoped-enums -I ${CMAKE_SOURCE_DIR} -o ${DTORCH_GENERATED_DIR}/${room} ${schema}
      DEPENDS ${schema} COMMENT "Compiling ${room}/${name}.fbs" VERBATIM)
    list(APPEND headers ${header})
  endforeach()
  set(${out} ${headers} PARENT_SCOPE)
endfunction()

# Precompiled headers, compiled once and shared by every target that uses them: `aten`, what the rooms of operators and
# the worker include (LibTorch's, in builds with kernels, and our own), and `plain`, the standard library's.
function(dtorch_use_pch target kind)
  set(carrier dtorch_${kind}_pch)
  if(NOT TARGET ${carrier})
    file(WRITE ${CMAKE_BINARY_DIR}/${kind}_pch.cc.in "// Carries precompiled headers.\n")
    configure_file(${CMAKE_BINARY_DIR}/${kind}_pch.cc.in ${CMAKE_BINARY_DIR}/${kind}_pch.cc COPYONLY)
    add_library(${carrier} OBJECT ${CMAKE_BINARY_DIR}/${kind}_pch.cc)
    target_link_libraries(${carrier} PRIVATE dtorch_flags dtorch_door_common)
    set(headers <algorithm> <array> <cstdint> <functional> <map> <memory> <optional> <span> <string> <unordered_map>
                <utility> <vector>)
    if(kind STREQUAL aten)
      target_include_directories(${carrier} PRIVATE ${CMAKE_SOURCE_DIR} ${DTORCH_GENERATED_DIR})
      # Those that every operator includes.
      list(APPEND headers ${CMAKE_SOURCE_DIR}/dtorch/kernel.h ${CMAKE_SOURCE_DIR}/runtime/client/record.h)
      if(DTORCH_KERNELS STREQUAL torch)
        target_link_libraries(${carrier} PRIVATE dtorch_door_torch)
        list(PREPEND headers <ATen/core/Tensor.h> <ATen/ops/empty.h>)
        target_compile_definitions(${carrier} PRIVATE DTORCH_WITH_KERNELS=1)
      else()
        target_compile_definitions(${carrier} PRIVATE DTORCH_WITH_KERNELS=0)
      endif()
    endif()
    target_precompile_headers(${carrier} PRIVATE ${headers})
    # Not through ccache: the compiler takes a header for the precompiled one only while its time is that of then, so
    # that a kept file would fit no other checkout.
    set_target_properties(${carrier} PROPERTIES CXX_COMPILER_LAUNCHER "")
  endif()
  target_precompile_headers(${target} REUSE_FROM ${carrier})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# dtorch_program(<name> SOURCES file... [LIBS target...]): an executable of our own code in DTORCH_BIN_DIR.
function(dtorch_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE dtorch_flags ${ARG_LIBS})
endfunction()
