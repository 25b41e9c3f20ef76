// Entry points of the emulated driver, with the signatures of the table.
#pragma once

#include <type_traits>

#include "runtime/driver_api.h"

namespace jit::emulated_driver {

#define JIT_EMULATED_ENTRY(function, since) std::remove_pointer_t<PFN_##function##_v##since> function;
JIT_DRIVER_ENTRIES(JIT_EMULATED_ENTRY)
JIT_PEER_ENTRIES(JIT_EMULATED_ENTRY)
#undef JIT_EMULATED_ENTRY

}  // namespace jit::emulated_driver
