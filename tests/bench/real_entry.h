// A kernel as it lies in the cache.
#pragma once

#include <vector>

#include "cache/entry.h"
#include "cache/key.h"

namespace jit::bench {

struct RealEntry {
  std::vector<KeyField> fields;  ///< of its key, but for the schema version, which Key adds itself
  Entry entry;
};
/// The kernel for bf16, head_dim 128, no mask, compiled at the first call.
const RealEntry& real_entry();

}  // namespace jit::bench
