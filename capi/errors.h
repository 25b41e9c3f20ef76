// Exceptions as errors of C: no function of jit/c.h lets one pass.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <jit/c.h>
#include <jit/error.h>

namespace jit::c {

/// Throws Error invalid_argument about an argument, whose name begins the sentence: "q: is missing".
[[noreturn]] void refuse(std::string_view argument, const std::string& message);

/// Sets `*error` to the exception that is being handled, unless `error` is null. Returns its code.
jit_code report_exception(jit_error** error) noexcept;

/// Calls `call`, and tells of what it throws.
template <class F>
jit_code guarded(jit_error** error, const F& call) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    call();
    return JIT_OK;
  } catch (...) {
    return report_exception(error);
  }
}

/// A copy that jit_text_free frees.
char* text_of(std::string_view text);

/// Throws where a pointer of an argument is null, or not aligned as its type must be.
template <class T>
T& checked_pointer(T* pointer, std::string_view argument) {
  if (pointer == nullptr) refuse(argument, "is a null pointer");
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) != 0)
    refuse(argument, "is a pointer that is not aligned to " + std::to_string(alignof(T)) + " bytes");
  return *pointer;
}

}  // namespace jit::c
