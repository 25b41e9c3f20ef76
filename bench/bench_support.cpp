#include "bench/bench_support.h"

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "generator/context_state.h"
#include "runtime/driver_api.h"

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

const RealEntry& real_entry() {
  static const RealEntry real = [] {
    const TemporaryFolder folder;
    const Context context(cached_in(folder.path()));
    const CompiledKernel kernel = compile(spec_of(128, false), arch, {}, context);
    std::optional<Entry> entry = context.state()->disk.load_by_digest(kernel.key());
    if (!entry) throw std::runtime_error("the kernel that was compiled is not in the cache");
    std::optional<std::vector<KeyField>> fields = parse_canonical_text(entry->key_text);
    if (!fields) throw std::runtime_error("the entry's key is not in canonical form");
    fields->erase(fields->begin());  // the schema version, which Key adds itself
    return RealEntry{std::move(*fields), std::move(*entry)};
  }();
  return real;
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

void synchronize() { check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize"); }

}  // namespace jit::bench
