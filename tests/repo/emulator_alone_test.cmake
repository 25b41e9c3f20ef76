# Configures a copy of the folder EMULATOR, from which no path leads back to the tree, as a project of its own. Also given:
# GENERATOR and COMPILER of the build, and a PREFIX where libraries may be.
execute_process(COMMAND mktemp -d OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(COPY ${EMULATOR} DESTINATION ${folder} PATTERN recordings EXCLUDE)
execute_process(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${folder}/emulator -B ${folder}/build
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${PREFIX} RESULT_VARIABLE status)
file(REMOVE_RECURSE ${folder})
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the emulator cannot be configured alone: ${status}")
endif()
