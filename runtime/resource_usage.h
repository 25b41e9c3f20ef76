// Reading what the assembler says of a kernel.
#pragma once

#include <string_view>

#include <jit/resource_usage.h>

namespace jit {

/// Reads the log that ptxas writes with -v. `kernel` names the entry to report; when it is empty or absent
/// from the log the result is the largest value of each figure over all entries. Never throws: unknown text
/// is skipped.
ResourceUsage parse_resource_usage(std::string_view log, std::string_view kernel);

}  // namespace jit
