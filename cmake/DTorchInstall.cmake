# cmake --install: libraries, headers under include/dtorch/, and the package for find_package(dtorch).
include(CMakePackageConfigHelpers)
get_property(exported GLOBAL PROPERTY DTORCH_EXPORTED_TARGETS)
install(TARGETS ${exported} EXPORT dtorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dtorch)
install(EXPORT dtorchTargets NAMESPACE dtorch:: DESTINATION ${package_dir})
foreach(room runtime mesh ops nn io checker)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dtorch FILES_MATCHING PATTERN "*.h")
endforeach()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/dtorch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

if(DTORCH_KERNELS STREQUAL torch)
  cmake_path(GET DTorchLibTorch_INCLUDE PARENT_PATH DTORCH_INSTALL_TORCH_DIR)
endif()
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/dtorchConfig.cmake.in ${CMAKE_BINARY_DIR}/dtorchConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/dtorchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/dtorchConfig.cmake ${CMAKE_BINARY_DIR}/dtorchConfigVersion.cmake
              ${CMAKE_SOURCE_DIR}/cmake/FindDTorchLibTorch.cmake DESTINATION ${package_dir})
