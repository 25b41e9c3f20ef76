// 128-bit content digests (XXH3). They name cache entries and detect damage, but do not protect from an
// adversary; the ownership checks of cache_directory.h do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace jit {

/// A 128-bit digest; equal bytes give equal digests on every machine.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  bool operator==(const Digest&) const = default;
  auto operator<=>(const Digest&) const = default;

  /// 32 lower-case hexadecimal digits, high half first.
  std::string hex() const;
};

/// Digest of these bytes. Allocates nothing.
Digest digest(std::span<const std::byte> bytes);
Digest digest(std::string_view text);

/// Digest of a sequence of fields. Every field is preceded by its length, so that ("ab", "c") and ("a", "bc")
/// differ. Lives on the stack and allocates nothing.
class Digester {
 public:
  Digester();

  Digester& add(std::string_view field);
  Digester& add(std::span<const std::byte> field);
  Digester& add(std::uint64_t number);

  /// The digest of all fields added so far; more may be added afterwards.
  Digest finish() const;

 private:
  alignas(64) std::array<std::byte, 576> state_;  // an XXH3 state; digest.cpp checks the size
};

}  // namespace jit
