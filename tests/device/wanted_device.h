// Whether tests of a device run here.
#pragma once

#include <string>

#include <jit/device.h>
#include <jit/error.h>

namespace jit::testing {

/// Why they do not: there is no GPU, and JIT_ATTENTION_DEVICE names no emulated device to run them on. Empty:
/// they do.
inline std::string why_no_device() {
  try {
    devices();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace jit::testing
