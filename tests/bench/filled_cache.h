// A cache folder with many entries, each of a real kernel's size.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/bench_support.h"
#include "cache/key.h"

namespace jit::bench {

class FilledCache {
 public:
  /// The folder with so many entries, made at the first call and shared by all benchmarks; it goes away with
  /// the process. They leave in it what they found.
  static const FilledCache& of(std::size_t entries);

  explicit FilledCache(std::size_t entries);

  const std::string& path() const { return folder_.path(); }
  /// The keys of the entries.
  const std::vector<Key>& keys() const { return keys_; }
  /// Puts those entries there that are not.
  void fill() const;

 private:
  TemporaryFolder folder_;
  std::vector<Key> keys_;
};

/// A key like those of real kernels; keys of different numbers differ.
Key numbered_key(std::size_t number);

/// Path of the entry's file.
std::string entry_path(const std::string& folder, const std::string& digest_hex);

}  // namespace jit::bench
