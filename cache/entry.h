// The bytes of one cache entry: everything about a kernel in one file, protected by one checksum.
// docs/reference/file-formats.md draws them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace jit {

/// One cached kernel.
struct Entry {
  std::string key_text;         ///< Key::text() of the entry's key
  std::string metadata;         ///< any text of the caller, opaque to the cache
  std::vector<std::byte> code;  ///< machine code or PTX; never empty in a valid entry

  bool operator==(const Entry&) const = default;
};

/// The entry as bytes.
std::vector<std::byte> encode(std::string_view key_text, std::string_view metadata,
                              std::span<const std::byte> code);
std::vector<std::byte> encode(const Entry& entry);

/// The entry encoded by exactly `bytes`; nothing if they are damaged, truncated, of another version or
/// anything else. Safe for any bytes.
std::optional<Entry> decode(std::span<const std::byte> bytes);

/// Size that the header of an entry at the beginning of `bytes` claims; nothing if there is no header or the
/// size exceeds `bytes`.
std::optional<std::size_t> encoded_size(std::span<const std::byte> bytes);

/// The bytes that every entry begins with.
std::span<const std::byte> entry_magic();

}  // namespace jit
