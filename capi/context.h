// Contents of a jit_context.
#pragma once

#include <jit/c.h>
#include <jit/context.h>

struct jit_context {
  jit::Context context;
  int device;  ///< -1: the calling thread's current one
};

namespace jit::c {

/// The device that calls use now. Throws Error driver_unavailable.
int device_now(const jit_context& context);

}  // namespace jit::c
