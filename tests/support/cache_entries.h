// Entries of a cache that no compiler has seen.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cache/entry.h"
#include "cache/key.h"

namespace jit::testing {

/// The key of a program that is no more than a word.
inline Key key_of(const std::string& source) { return Key{{"source", source}, {"arch", "sm_90a"}}; }

/// As many bytes that look random, the same for a seed.
inline std::vector<std::byte> bytes_of(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    seed = seed * 1664525u + 1013904223u;
    bytes[i] = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

/// The entry that every test stores under `key`: different for different keys.
inline Entry entry_of(const Key& key, std::size_t size = 300) {
  return {key.text(), "{\"registers\":168}", bytes_of(size, static_cast<unsigned>(key.digest().low))};
}

/// Where a cache folder keeps the entry.
inline std::string path_of(const std::string& directory, const Key& key) {
  const std::string hex = key.digest().hex();
  return directory + "/v1/" + hex.substr(0, 2) + "/" + hex + ".bin";
}

}  // namespace jit::testing
