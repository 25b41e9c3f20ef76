// Keeping a cache folder below its caps: what lies in it, and removing the least recently used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/atomic_file.h"
#include "cache/file_system.h"

namespace jit {

/// One entry file as a scan saw it.
struct StoredFile {
  std::string digest;  ///< 32 hexadecimal digits
  std::string path;    ///< relative to the cache folder
  ino_t inode = 0;
  std::uint64_t bytes = 0;
  timespec modified{};  ///< when it was last used
};

/// The contents of a folder, or its limit; `bytes` in whole blocks of 4 KiB.
struct Usage {
  std::uint64_t bytes = 0;
  std::size_t entries = 0;
};

/// Where the entry of a digest lies, relative to the cache folder: the folder, then the name in it.
std::string entry_folder(const std::string& digest_hex);
std::string entry_name(const std::string& digest_hex);

/// All entry files below the open folder `directory`, in no order; files of other names are passed over. With
/// `remove_abandoned`, temporary files that crashed writers have left are removed on the way.
std::vector<StoredFile> scan_entries(FileSystem& file_system, int directory, bool remove_abandoned);

Usage usage_of(const std::vector<StoredFile>& files);

/// Bytes that a file of this size counts against a cap.
std::uint64_t charged_bytes(std::uint64_t bytes);

/// The outcome of removing files. One that is gone, replaced or used meanwhile is no failure.
struct Removal {
  std::size_t files = 0;     ///< how many went
  FileFailure failure = {};  ///< of the first that had to stay

  Removal& operator+=(const Removal& other);
};

/// Removes the file if it is still the one that the scan saw, neither replaced nor used since.
Removal remove_unchanged(FileSystem& file_system, int directory, const StoredFile& file);

/// Removes the least recently used of `files` until what remains is within `target`.
Removal evict(FileSystem& file_system, int directory, std::vector<StoredFile> files, const Usage& target);

}  // namespace jit
