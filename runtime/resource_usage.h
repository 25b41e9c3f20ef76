// Parses the resource usage that ptxas reports.
#pragma once

#include <string_view>

#include <jit/resource_usage.h>

namespace jit {

/// Parses the log of ptxas -v. `kernel` names the entry; if it is empty or not in the log, each figure is the
/// maximum over all entries. Never throws: unknown text is skipped.
ResourceUsage parse_resource_usage(std::string_view log, std::string_view kernel);

}  // namespace jit
