# jit_fmt: fmt for all of the tree. Of version 9 its functions are compiled once, by cmake/fmt.cc; of others, whose list
# of templates differs, each source compiles what it uses.
find_package(fmt REQUIRED)
get_target_property(fmt_headers fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(jit_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cc)
  target_include_directories(jit_fmt SYSTEM PUBLIC $<BUILD_INTERFACE:${fmt_headers}>)
  target_compile_features(jit_fmt PRIVATE cxx_std_20)
else()
  add_library(jit_fmt INTERFACE)
  target_link_libraries(jit_fmt INTERFACE $<BUILD_INTERFACE:fmt::fmt-header-only>)
endif()
