# cmake -P third_party/fetch_all.cmake: all files of files.txt, as an sdist contains them.
include(${CMAKE_CURRENT_LIST_DIR}/fetch.cmake)
jit_fetch(fmt nlohmann_json CLI11 xxhash)
