// Keeps a cache folder within its limits: scans it and removes the least recently used entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/atomic_file.h"
#include "cache/file_system.h"

namespace jit {

/// One entry file, as scanned.
struct StoredFile {
  std::string digest;  ///< 32 hexadecimal digits
  std::string path;    ///< relative to the cache folder
  ino_t inode = 0;
  std::uint64_t bytes = 0;
  timespec modified{};  ///< time of last use
};

/// Total size of a folder's entries, or its limit; `bytes` counts whole blocks of 4 KiB.
struct Usage {
  std::uint64_t bytes = 0;
  std::size_t entries = 0;
};

/// Folder of a digest's entry, relative to the cache folder, and the file name in it.
std::string entry_folder(const std::string& digest_hex);
std::string entry_name(const std::string& digest_hex);

/// All entry files below the open folder `directory`, unordered; files with other names are skipped. With
/// `remove_abandoned`, also removes temporary files that crashed writers left.
std::vector<StoredFile> scan_entries(FileSystem& file_system, int directory, bool remove_abandoned);

Usage usage_of(const std::vector<StoredFile>& files);

/// Bytes by which a file of this size counts toward a limit.
std::uint64_t charged_bytes(std::uint64_t bytes);

/// The outcome of removing files. A file removed, replaced or used meanwhile is no failure.
struct Removal {
  std::size_t files = 0;     ///< number of removed files
  FileFailure failure = {};  ///< of the first file that could not be removed

  Removal& operator+=(const Removal& other);
};

/// Removes the file unless it was replaced or used since the scan.
Removal remove_unchanged(FileSystem& file_system, int directory, const StoredFile& file);

/// Removes the least recently used of `files` until the rest is within `target`.
Removal evict(FileSystem& file_system, int directory, std::vector<StoredFile> files, const Usage& target);

}  // namespace jit
