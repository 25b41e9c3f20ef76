// The Error that a call throws, to look at.
#pragma once

#include <jit/error.h>

#include <gtest/gtest.h>

namespace jit::testing {

/// Calls `call` and returns what it throws; fails the test when it throws nothing.
template <class F>
Error error_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::io_error, "", "", "");
}

}  // namespace jit::testing
