#pragma once

#include <jit/error.h>

#include "runtime/driver_api.h"

namespace jit::testing {

/// A non-blocking stream of the current device.
class TestStream {
 public:
  TestStream() { check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); }
  ~TestStream() { driver().cuStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  CUstream get() const { return stream_; }
  void synchronize() const { check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  CUstream stream_ = nullptr;
};

}  // namespace jit::testing
