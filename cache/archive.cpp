#include "cache/archive.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "cache/entry.h"

namespace jit {
namespace {

constexpr std::size_t most_readings = 8;  // average limit per byte

// Offset of the next entry's magic bytes at or after `at`.
std::size_t find_entry(std::span<const std::byte> archive, std::size_t at) {
  const auto magic = entry_magic();
  const auto found = std::search(archive.begin() + static_cast<std::ptrdiff_t>(at), archive.end(),
                                 magic.begin(), magic.end());
  return static_cast<std::size_t>(found - archive.begin());
}

}  // namespace

ArchiveContents read_archive(std::span<const std::byte> archive) {
  ArchiveContents contents;
  std::size_t whole_to = 0;  // end of the last whole entry
  std::uint64_t bytes_left = std::uint64_t{most_readings} * archive.size();
  const auto report = [&](std::size_t end, const char* what) {
    if (end > whole_to)
      contents.damaged.push_back(fmt::format("{} bytes at offset {} {}", end - whole_to, whole_to, what));
  };
  for (std::size_t at = 0; at < archive.size();) {
    const std::span<const std::byte> rest = archive.subspan(at);
    const std::size_t size = encoded_size(rest).value_or(0);
    if (size > bytes_left) {
      report(archive.size(), "are left out: there is too much damage in them");
      return contents;
    }
    bytes_left -= size;
    if (const std::optional<Entry> entry = decode(rest.first(size))) {
      report(at, "are no whole entry");
      contents.entries.push_back({digest(entry->key_text), rest.first(size)});
      at += size;
      whole_to = at;
    } else {
      // A damaged entry's length is unreliable, so search for the next entry's magic bytes.
      at = find_entry(archive, at + 1);
    }
  }
  report(archive.size(), "are no whole entry");
  return contents;
}

}  // namespace jit
