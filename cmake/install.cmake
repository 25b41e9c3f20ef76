# `cmake --install`: the CMake package jit_attention, whose components are what may be installed alone: `static`, the C++
# interface and what it is linked of, and `shared`, the C interface as a shared library with its .pc file. The tool has its
# own rule, in tools.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/jit_attention)

install(TARGETS jit_attention jit_emulator jit_fmt EXPORT jit_attentionTargets DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT static)
install(DIRECTORY include/jit ${PROJECT_BINARY_DIR}/include/jit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT static
  FILES_MATCHING PATTERN "*.h")
install(EXPORT jit_attentionTargets NAMESPACE jit_attention:: DESTINATION ${package_folder} COMPONENT static)
configure_package_config_file(cmake/jit_attentionConfig.cmake.in jit_attentionConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(jit_attentionConfigVersion.cmake COMPATIBILITY SameMinorVersion)
set(package_files ${PROJECT_BINARY_DIR}/jit_attentionConfig.cmake ${PROJECT_BINARY_DIR}/jit_attentionConfigVersion.cmake)
install(FILES ${package_files} DESTINATION ${package_folder} COMPONENT static)

if(JIT_ATTENTION_SHARED)
  install(TARGETS jit_attention_shared EXPORT jit_attentionSharedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT shared NAMELINK_COMPONENT shared)
  install(FILES include/jit/c.h include/jit/c_key_mass.h include/jit/tvm_ffi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/jit COMPONENT shared)
  install(EXPORT jit_attentionSharedTargets NAMESPACE jit_attention:: DESTINATION ${package_folder} COMPONENT shared)
  install(FILES ${package_files} DESTINATION ${package_folder} COMPONENT shared)
  # The prefix of the .pc file follows from where it lies, so that it may be moved.
  file(RELATIVE_PATH prefix_from_pkgconfig ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  configure_file(cmake/jit_attention.pc.in jit_attention.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/jit_attention.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT shared)
endif()
