#include "tvm/operations.h"

#include <memory>
#include <new>
#include <stdexcept>

#include <jit/error.h>

namespace jit::tvm {

void throw_if(jit_error* error) {
  if (error == nullptr) return;
  const std::unique_ptr<jit_error, decltype(&jit_error_free)> owner(error, &jit_error_free);
  if (error->code == JIT_OUT_OF_MEMORY) throw std::bad_alloc();
  if (error->code == JIT_INTERNAL_ERROR) throw std::runtime_error(error->message);
  throw Error(static_cast<ErrorCode>(error->code - 1), error->stage, error->field, error->message);
}

const jit_operation* Operations::of(int device, jit_kind kind, const std::string& spec) {
  const std::lock_guard lock(mutex_);
  jit_operation*& operation = operations_[{device, kind, spec}];
  if (operation != nullptr) return operation;
  jit_error* error = nullptr;
  jit_context*& context = contexts_[device];
  if (context == nullptr) {
    jit_context_options options = {};
    options.size = sizeof(options);
    options.device = device;
    jit_context_create(&options, &context, &error);
    throw_if(error);
  }
  jit_spec given = {};
  given.size = sizeof(given);
  given.text = spec.c_str();
  jit_operation_create(context, kind, &given, &operation, &error);
  throw_if(error);
  return operation;
}

}  // namespace jit::tvm
