// Exceptions as C errors: no function of jit/c.h lets one escape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <jit/c.h>
#include <jit/error.h>

namespace jit::c {

/// Throws Error invalid_argument about an argument; the sentence starts with its name: "q: is missing".
[[noreturn]] void refuse(std::string_view argument, const std::string& message);

/// Sets `*error` to the current exception, unless `error` is null. Returns its code.
jit_code report_exception(jit_error** error) noexcept;

/// Runs `call` and reports its exceptions.
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

/// A copy, to be freed by jit_text_free.
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
