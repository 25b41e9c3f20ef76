# Compiles the CRATE and its example by rustc alone, with nothing from the net, and runs it over the shared LIBRARY. WORK is
# a folder for what is compiled.
find_program(rustc rustc HINTS $ENV{HOME}/.cargo/bin)
if(NOT rustc)
  message("skipped: rustc is not installed; apt install rustc")
  return()
endif()
get_filename_component(library_folder ${LIBRARY} DIRECTORY)
file(MAKE_DIRECTORY ${WORK})
set(strict --edition 2021 -D warnings)
foreach(command
    "${rustc};${strict};--crate-type;rlib;--crate-name;jit_attention;${CRATE}/src/lib.rs;-o;${WORK}/libjit_attention.rlib"
    "${rustc};${strict};${CRATE}/examples/attention.rs;--extern;jit_attention=${WORK}/libjit_attention.rlib;-L;${library_folder};-o;${WORK}/attention"
    "${CMAKE_COMMAND};-E;env;LD_LIBRARY_PATH=${library_folder};JIT_ATTENTION_DEVICE=emulated:sm_90a;JIT_ATTENTION_NO_DISK_CACHE=1;${WORK}/attention")
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  if(NOT status EQUAL 0)
    list(JOIN command " " command)
    message(FATAL_ERROR "failed with ${status}: ${command}")
  endif()
endforeach()
if(NOT output MATCHES "largest error against double precision")
  message(FATAL_ERROR "the example printed no check")
endif()
