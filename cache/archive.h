// Archives: concatenated cache entries in one file; any part may be damaged.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cache/digest.h"

namespace jit {

struct ArchiveEntry {
  Digest key;                        ///< digest of the key's text
  std::span<const std::byte> bytes;  ///< a whole entry; points into the archive
};

struct ArchiveContents {
  std::vector<ArchiveEntry> entries;
  std::vector<std::string> damaged;  ///< a sentence per stretch of bytes that is no whole entry
};

/// The whole entries of an archive, in order. Takes time linear in its size for any content: each byte is
/// read a few times at most on average, and the rest of a damaged archive that needs more is skipped.
ArchiveContents read_archive(std::span<const std::byte> archive);

}  // namespace jit
