// The frame of every entry point: converts thrown failures to a CUresult and a text that the calling thread
// can query.
#pragma once

#include <new>
#include <string>
#include <string_view>

#include <cuda.h>

namespace jit::emulated_driver {

/// A failure, which ends an entry point.
struct Failure {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::string text = {};  ///< a sentence; empty: the result's own text
};

[[noreturn]] inline void fail(CUresult result, std::string text = {}) {
  throw Failure{result, std::move(text)};
}

/// Clears the failure of the thread's last call.
void begin_call() noexcept;
/// Stores the text, cut to some 4 KB, for this thread's cuGetErrorString until its next call begins. Returns
/// the result.
CUresult end_call(const Failure& failure) noexcept;

template <class Body>
CUresult call(const Body& body) noexcept {
  begin_call();
  try {
    body();
    return CUDA_SUCCESS;
  } catch (const Failure& failure) {
    return end_call(failure);
  } catch (const std::bad_alloc&) {
    return end_call({CUDA_ERROR_OUT_OF_MEMORY, "the host has too little memory for this"});
  } catch (const std::exception& error) {
    return end_call({CUDA_ERROR_UNKNOWN, error.what()});
  }
}

/// Fails with CUDA_ERROR_INVALID_VALUE if `pointer`, the argument `name`, is null.
inline void require(const void* pointer, std::string_view name) {
  if (!pointer) fail(CUDA_ERROR_INVALID_VALUE, std::string(name) + " is null");
}

}  // namespace jit::emulated_driver
