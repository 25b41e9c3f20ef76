// What the benchmarks share: settings, folders, a real kernel's cache entry, and whether there is a GPU.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <jit/attention.h>

#include "cache/entry.h"
#include "cache/key.h"

namespace jit::bench {

/// What is compiled for where no GPU decides.
inline constexpr Arch arch{9, 0, 'a'};

/// A folder that goes away at the end of its scope.
class TemporaryFolder {
 public:
  /// Throws std::system_error.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// bf16, with a causal mask or none.
AttentionSpec spec_of(int head_dim, bool causal);

/// Nothing on disk, nothing tuned.
Settings memory_only();
/// Kernels kept in `folder`, nothing tuned.
Settings cached_in(const std::string& folder);

/// A kernel as it lies in the cache, and the fields of its key.
struct RealEntry {
  std::vector<KeyField> fields;
  Entry entry;
};
/// That of bf16, head_dim 128, no mask: compiled at the first call.
const RealEntry& real_entry();

/// False where there is no GPU, and then the benchmark is skipped with a sentence: an emulated device has no
/// time that means anything.
bool requires_gpu(benchmark::State& state);

/// Waits for all work on the default stream.
void synchronize();

/// The exit status of the process when it is a child that a benchmark has started (see bench_process.cpp).
std::optional<int> run_child(int argc, char** argv);

}  // namespace jit::bench
