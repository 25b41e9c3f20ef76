// Global functions of apache-tvm-ffi that call the library.
#include <jit/tvm_ffi.h>

#include <memory>
#include <string>

#include "capi/errors.h"
#include "tvm/calls.h"
#include "tvm/library.h"
#include "tvm/operations.h"

namespace jit::tvm {
namespace {

Library library;  // set before any function is registered

Operations& operations() {
  static Operations& all = *new Operations;  // calls may come while the process exits
  return all;
}

/// A function of jit/c.h that launches a call.
template <class Arguments>
using Launch = jit_code (*)(const jit_operation*, const Arguments*, void* stream, jit_error**);

template <class Arguments>
void launch(jit_kind kind, Call<Arguments> (*read)(const GivenCall&), Launch<Arguments> launch,
            const Value* arguments, std::int32_t count) {
  const GivenCall given = read_call(arguments, count);
  const Call<Arguments> call = read(given);
  const std::optional<jit_tensor_device> device = device_of(given);
  if (!device) c::refuse("names", "has no tensor");
  void* const stream = library.stream(device->device_type, device->device_id);
  jit_error* error = nullptr;
  launch(operations().of(device->device_id, kind, given.spec), &call.arguments, stream, &error);
  throw_if(error);
}

// tvm-ffi's calling convention: an error is stored in the thread.
template <class Run>
int answered(const Run& run, Value* result) {
  jit_error* error = nullptr;
  if (c::guarded(&error, run) == JIT_OK) {
    *result = {.type = none, .small_length = 0, .whole = 0};
    return 0;
  }
  const bool is_of_arguments = error->code == JIT_INVALID_ARGUMENT || error->code == JIT_INVALID_SPEC;
  library.set_error(is_of_arguments ? "ValueError" : "RuntimeError", error->message);
  jit_error_free(error);
  return -1;
}

int attention(void*, const Value* arguments, std::int32_t count, Value* result) {
  return answered([&] { launch(JIT_ATTENTION, &forward_call, &jit_forward, arguments, count); }, result);
}

int attention_backward(void*, const Value* arguments, std::int32_t count, Value* result) {
  return answered([&] { launch(JIT_ATTENTION, &backward_call, &jit_backward, arguments, count); }, result);
}

int append(void*, const Value* arguments, std::int32_t count, Value* result) {
  return answered([&] { launch(JIT_APPEND, &append_call, &jit_append, arguments, count); }, result);
}

int merge(void*, const Value* arguments, std::int32_t count, Value* result) {
  return answered([&] { launch(JIT_MERGE, &merge_call, &jit_merge, arguments, count); }, result);
}

void register_function(const std::string& name, Function function) {
  void* object = nullptr;
  const Bytes bytes = {name.data(), name.size()};
  if (library.function_create(nullptr, function, nullptr, &object) != 0 ||
      library.function_set_global(&bytes, object, /*may_replace=*/1) != 0)
    c::refuse("library", "did not take the function " + name);
  library.object_release(object);
}

}  // namespace
}  // namespace jit::tvm

jit_code jit_tvm_ffi_register(const char* path, jit_error** error) {
  using namespace jit::tvm;
  return jit::c::guarded(error, [&] {
    library = load_library(path == nullptr ? "" : path);
    register_function("jit_attention.attention", &attention);
    register_function("jit_attention.attention_backward", &attention_backward);
    register_function("jit_attention.append", &append);
    register_function("jit_attention.merge", &merge);
  });
}
