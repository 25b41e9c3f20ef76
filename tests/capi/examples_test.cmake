# Compiles the examples of the headers of C, which stand between @code and @endcode, as functions of a program of C. They use
# the names that the lines below declare. Given: CC, INCLUDE, and a folder to WORK in.
file(READ ${INCLUDE}/jit/c.h text)
file(READ ${INCLUDE}/jit/tvm_ffi.h tvm_text)
file(READ ${INCLUDE}/jit/c_key_mass.h key_mass_text)
string(APPEND text "${tvm_text}" "${key_mass_text}")
set(program "#include <stdio.h>
#include <jit/c.h>
#include <jit/c_key_mass.h>
#include <jit/tvm_ffi.h>
static jit_context* context;
static jit_operation *attention, *append, *merge, *quantize, *blocks, *key_mass;
static jit_error* error;
static void* stream;
static jit_buffer* buffer;
static char *json, *text;
static jit_spec spec;
static jit_forward_arguments call;
static jit_tensor q, k, v, o, lse, d_o, dq, dk, dv, k_pages, v_pages, page_table, lengths, slots, prefix_o, prefix_lse,
    suffix_o, suffix_lse, q8, k8, v8, qs, ks, vs, table, mass;
")
set(count 0)
string(FIND "${text}" "/// @code\n" begin)
while(NOT begin EQUAL -1)
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(FIND "${text}" "/// @endcode" end)
  math(EXPR length "${end} - 10")
  string(SUBSTRING "${text}" 10 ${length} example)
  string(REGEX REPLACE "(^|\n)///" "\\1" example "${example}")
  string(APPEND program "void example_${count}(void);\nvoid example_${count}(void) {\n${example}}\n")
  math(EXPR count "${count} + 1")
  string(SUBSTRING "${text}" ${end} -1 text)
  string(FIND "${text}" "/// @code\n" begin)
endwhile()
if(count LESS 12)
  message(FATAL_ERROR "there are only ${count} examples")
endif()
file(WRITE ${WORK}/examples.c "${program}")
execute_process(COMMAND ${CC} -std=c11 -Wall -Wextra -pedantic -Werror -Wno-unused-variable -fsyntax-only -I${INCLUDE}
  ${WORK}/examples.c COMMAND_ERROR_IS_FATAL ANY)
