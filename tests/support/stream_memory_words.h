// What launches on a stream, which are done, have left in its counters and mailboxes.
#pragma once

#include <string>

#include <jit/context.h>

#include "runtime/driver_api.h"

namespace jit::testing {

/// Which counter is not 0, or which word of a mailbox of up to 16 MiB is not empty, as launches find all of them.
std::string disorder(const Context& context, CUstream stream);

}  // namespace jit::testing
