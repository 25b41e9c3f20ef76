# `cmake --install`: the static libraries, the public headers and the CMake package jit_attention. The tool has its own
# rule, in tools.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/jit_attention)

install(TARGETS jit_attention jit_emulator jit_fmt EXPORT jit_attentionTargets)
install(DIRECTORY include/jit ${PROJECT_BINARY_DIR}/include/jit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT jit_attentionTargets NAMESPACE jit_attention:: DESTINATION ${package_folder})
configure_package_config_file(cmake/jit_attentionConfig.cmake.in jit_attentionConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(jit_attentionConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/jit_attentionConfig.cmake ${PROJECT_BINARY_DIR}/jit_attentionConfigVersion.cmake
  DESTINATION ${package_folder})

