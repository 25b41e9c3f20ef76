// Read-only files of entries, such as one in a machine image. docs/reference/file-formats.md draws the
// format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache_directory.h"
#include "cache/digest.h"
#include "cache/entry.h"
#include "cache/key.h"

namespace jit {

/// A compressed entry, as packs contain it.
struct PackedEntry {
  explicit PackedEntry(const Entry& entry);
  Digest key;
  std::vector<std::byte> bytes;
  auto operator<=>(const PackedEntry&) const = default;
};

/// Encodes a pack: the facts that all its entries share, and the entries. The bytes do not depend on the
/// order of `entries`.
std::vector<std::byte> encode_pack(std::span<const KeyField> facts, std::vector<PackedEntry> entries);

/// A pack in memory. Immutable, thread safe, and safe for any bytes.
class PackFile {
 public:
  /// Reads a file that only its user or root can write. Reports no error; `refusal` says why it is not used.
  PackFile(FileSystem& file_system, const std::string& path);
  /// A pack from bytes; `path` is for messages.
  PackFile(std::string path, std::vector<std::byte> bytes);

  const std::string& path() const { return path_; }
  /// Why the pack is not used, in one sentence; empty if it is.
  const std::string& refusal() const { return refusal_; }
  /// A fact that all entries share; empty if the pack does not state it.
  std::string_view fact(std::string_view name) const;
  std::size_t size() const { return index_.size(); }

  /// The entry of a key, or why an existing one cannot be used, or nothing.
  struct Found {
    std::optional<Entry> entry;
    std::string damage;
  };
  Found find(const Key& key) const;

 private:
  struct Row {
    Digest key;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };
  // Why the head of the file is invalid; empty if it is valid.
  std::string read_head();

  std::string path_;
  std::vector<std::byte> bytes_;
  std::string refusal_;
  std::vector<KeyField> facts_;
  std::vector<Row> index_;  // sorted by key
};

}  // namespace jit
