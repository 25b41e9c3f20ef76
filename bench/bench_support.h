// Settings and folders that the benchmarks share, and a check for a GPU.
#pragma once

#include <filesystem>
#include <string>

#include <benchmark/benchmark.h>
#include <jit/attention.h>

namespace jit::bench {

/// The architecture that benchmarks compile for where no GPU decides.
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

/// False where there is no GPU, and then the benchmark is skipped with a sentence: an emulated device has no
/// time that means anything.
bool requires_gpu(benchmark::State& state);

}  // namespace jit::bench
