// Entries in one file that is only read, such as one that a machine image ships. docs/reference/file-formats.md draws it.
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

/// An entry as packs have it, compressed.
struct PackedEntry {
  explicit PackedEntry(const Entry& entry);
  Digest key;
  std::vector<std::byte> bytes;
  auto operator<=>(const PackedEntry&) const = default;
};

/// A pack as bytes: what all its entries have in common, and the entries. Equal entries give equal bytes, in
/// whatever order they come.
std::vector<std::byte> encode_pack(std::span<const KeyField> facts, std::vector<PackedEntry> entries);

/// A pack in memory. Immutable, thread safe, and safe on any bytes.
class PackFile {
 public:
  /// Reads a file that nobody but its user, or root, can write. Reports no error: `refusal` has it.
  PackFile(FileSystem& file_system, const std::string& path);
  /// The pack that these bytes are; `path` is for messages.
  PackFile(std::string path, std::vector<std::byte> bytes);

  const std::string& path() const { return path_; }
  /// Why the pack is not used, in one sentence; empty: it is.
  const std::string& refusal() const { return refusal_; }
  /// A fact that all entries have in common; empty when the pack does not tell.
  std::string_view fact(std::string_view name) const;
  std::size_t size() const { return index_.size(); }

  /// The entry of a key, or why the one that is there cannot be used, or nothing at all.
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
  // Empty, or what is wrong with the head of the file.
  std::string read_head();

  std::string path_;
  std::vector<std::byte> bytes_;
  std::string refusal_;
  std::vector<KeyField> facts_;
  std::vector<Row> index_;  // by key
};

}  // namespace jit
