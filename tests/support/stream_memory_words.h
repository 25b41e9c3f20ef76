// The counters and mailboxes of a stream after its launches are complete.
#pragma once

#include <string>

#include <jit/context.h>

#include "runtime/driver_api.h"

namespace jit::testing {

/// Whether a counter is not 0 or a word of a mailbox is not empty, as launches find all of them; empty if all is in order.
std::string disorder(const Context& context, CUstream stream);

}  // namespace jit::testing
