#include "bench/bench_support.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <jit/device.h>
#include <jit/error.h>

namespace jit::bench {

TemporaryFolder::TemporaryFolder() {
  char name[] = "/tmp/jit-attention-bench-XXXXXX";
  if (mkdtemp(name) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

AttentionSpec spec_of(int head_dim, bool causal) {
  AttentionSpec spec;
  spec.head_dim = head_dim;
  if (causal) spec.mask = mask::causal();
  return spec;
}

Settings memory_only() {
  Settings settings;
  settings.disk_cache = false;
  settings.tuning = TuningMode::off;
  return settings;
}

Settings cached_in(const std::string& folder) {
  Settings settings;
  settings.cache_dir = folder;
  settings.tuning = TuningMode::off;
  return settings;
}

bool requires_gpu(benchmark::State& state) {
  try {
    if (!device_info(0).emulated) return true;
    state.SkipWithError("needs a GPU: an emulated device has no time that means anything");
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
  return false;
}

}  // namespace jit::bench
