// The report of an import of cache entries or tuning records.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace jit {

struct ImportReport {
  std::size_t imported = 0;
  std::vector<std::string> damaged;  ///< one sentence for each entry or record that was skipped
};

}  // namespace jit
