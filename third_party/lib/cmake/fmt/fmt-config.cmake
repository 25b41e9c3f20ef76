include(${CMAKE_CURRENT_LIST_DIR}/../../../fetch.cmake)
jit_fetch(fmt)
if(NOT TARGET fmt::fmt-header-only)
  add_library(fmt::fmt-header-only INTERFACE IMPORTED)
  set_target_properties(fmt::fmt-header-only PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../../../include INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
endif()
