// The frame of every entry point: failures are thrown within the driver, and become a CUresult and a text
// that the calling thread can ask for.
#pragma once

#include <new>
#include <string>
#include <string_view>

#include <cuda.h>

namespace jit::emulated_driver {

/// Ends an entry point.
struct Failure {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::string text = {};  ///< a sentence; empty: that of the result
};

[[noreturn]] inline void fail(CUresult result, std::string text = {}) {
  throw Failure{result, std::move(text)};
}

/// Forgets what the thread's last call failed with.
void begin_call() noexcept;
/// Keeps the text, cut to some 4 KB, for cuGetErrorString in this thread until its next call begins. Returns
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

/// Fails with CUDA_ERROR_INVALID_VALUE unless `pointer`, the argument `name`, points somewhere.
inline void require(const void* pointer, std::string_view name) {
  if (!pointer) fail(CUDA_ERROR_INVALID_VALUE, std::string(name) + " is null");
}

}  // namespace jit::emulated_driver
