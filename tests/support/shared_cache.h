// The cache folder that tests of one build share, so that a kernel that many of them run is compiled once.
// Registers and spills are kept with a kernel. Tests that are about caches, or count compiles, have folders of their own.
#pragma once

#include <jit/settings.h>

namespace jit::testing {

/// Settings that keep kernels in the build's cache folder and tune nothing.
inline Settings shared_cache_settings() {
  Settings settings;
  settings.cache_dir = JIT_ATTENTION_TEST_CACHE;
  settings.tuning = TuningMode::off;
  return settings;
}

}  // namespace jit::testing
