vcpkg_from_github(
  OUT_SOURCE_PATH SOURCE_PATH
  REPO jit-attention/jit-attention
  REF "v${VERSION}"
  SHA512 0  # of the tag's archive
  HEAD_REF main)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS FEATURES tool JIT_ATTENTION_TOOL)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${FEATURE_OPTIONS} -DJIT_ATTENTION_TESTS=OFF -DJIT_ATTENTION_BENCH=OFF -DJIT_ATTENTION_NVRTC_HINT=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME jit_attention CONFIG_PATH lib/cmake/jit_attention)
if("tool" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES jit-attention AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
