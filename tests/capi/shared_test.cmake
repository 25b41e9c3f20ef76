# Compares what the shared LIBRARY exports with the list SYMBOLS, and checks its soname, what it needs, and its size
# without symbols. Given: NM, STRIP, READELF, a folder to WORK in, and the FLAGS of the build.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n]+\n" exported "${output}")
list(TRANSFORM exported STRIP)
list(FILTER exported EXCLUDE REGEX "^JIT_ATTENTION_1(@@JIT_ATTENTION_1)?$")  # the node itself, with some linkers
list(SORT exported)
file(STRINGS ${SYMBOLS} listed)
if(NOT exported STREQUAL listed)
  message(FATAL_ERROR "exported are\n${exported}\nand not\n${listed}\nPrograms that are compiled need all that was listed "
    "before; a new function is listed in capi/exports.map and tests/capi/symbols.txt.")
endif()

execute_process(COMMAND ${READELF} -d ${LIBRARY} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
if(NOT dynamic MATCHES "soname: \\[libjit_attention.so.1\\]")
  message(FATAL_ERROR "the soname is not libjit_attention.so.1:\n${dynamic}")
endif()
if(dynamic MATCHES "NEEDED[^\n]*(cuda|nvrtc|torch|fmt)")
  message(FATAL_ERROR "it links a library that it should open, or hold:\n${dynamic}")
endif()

if(FLAGS MATCHES "sanitize")
  return()  # instrumented code is larger
endif()
execute_process(COMMAND ${STRIP} -o ${WORK}/stripped.so ${LIBRARY} COMMAND_ERROR_IS_FATAL ANY)
file(SIZE ${WORK}/stripped.so size)
set(most 6400000)  # of the preset default: 6,000,000 of release, where functions have sections
if(size GREATER most)
  message(FATAL_ERROR "it has ${size} bytes without symbols, more than ${most}")
endif()
message("${size} bytes without symbols")
