# Installs the build folder BUILD to a fresh prefix, then builds and runs the project EXAMPLE, which has nothing but
# that prefix to find the library in. Also given: GENERATOR, COMPILER and FLAGS of the build, and
# whether it makes the TOOL.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed with ${status}: ${command}")
  endif()
endfunction()

function(expect_file path)
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "${path} is not installed")
  endif()
endfunction()

execute_process(COMMAND mktemp -d OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(prefix ${folder}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
expect_file(${prefix}/include/jit/attention.h)
expect_file(${prefix}/include/jit/error.h)
if(TOOL)
  expect_file(${prefix}/bin/jit-attention)
  run(${prefix}/bin/jit-attention --version)
endif()

# A copy, so that no path leads from the example back to the source tree.
file(COPY ${EXAMPLE}/ DESTINATION ${folder}/example)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${folder}/example -B ${folder}/build -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${folder}/build)
set(device JIT_ATTENTION_DEVICE=cuda)
if(NOT EXISTS /dev/nvidiactl)
  set(device JIT_ATTENTION_DEVICE=emulated:sm_90a,sm_90a)
endif()
foreach(example first_attention decode several_devices)
  run(${CMAKE_COMMAND} -E env ${device} JIT_ATTENTION_NO_DISK_CACHE=1 ${folder}/build/${example})
endforeach()
file(REMOVE_RECURSE ${folder})
