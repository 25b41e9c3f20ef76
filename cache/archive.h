// Archives: cache entries one after the other in one file, of which any part may be damaged.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cache/digest.h"

namespace jit {

struct ArchiveEntry {
  Digest key;                        ///< of its key's text
  std::span<const std::byte> bytes;  ///< whole; in the archive
};

struct ArchiveContents {
  std::vector<ArchiveEntry> entries;
  std::vector<std::string> damaged;  ///< a sentence for each stretch of bytes that is no whole entry
};

/// The whole entries of an archive, in order. Takes time in proportion to its size, whatever is in it: what
/// damaged entries claim is read again a few times at most, and the rest of an archive that wants more is left.
ArchiveContents read_archive(std::span<const std::byte> archive);

}  // namespace jit
