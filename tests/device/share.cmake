# Runs one of COUNT shares of a program's tests, as the run's seed chooses, and prints the seed.
# cmake -D PROGRAM=PATH -D COUNT=NUMBER -D FILTER=TESTS -P share.cmake
set(seed "$ENV{JIT_ATTENTION_TEST_SEED}")
if(NOT seed MATCHES "^[0-9]+$")
  string(RANDOM LENGTH 9 ALPHABET 123456789 seed)
  set(ENV{JIT_ATTENTION_TEST_SEED} ${seed})
endif()
if(NOT "$ENV{JIT_ATTENTION_TEST_ALL}" STREQUAL "1")
  # Not the lowest digits, which choose cases within a test.
  math(EXPR share "${seed} / 65536 % ${COUNT}")
  set(ENV{GTEST_TOTAL_SHARDS} ${COUNT})
  set(ENV{GTEST_SHARD_INDEX} ${share})
endif()
execute_process(COMMAND ${PROGRAM} --gtest_filter=${FILTER} RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "failed with JIT_ATTENTION_TEST_SEED=${seed}")
endif()
