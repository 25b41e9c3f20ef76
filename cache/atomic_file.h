// Reads and publishes whole files: readers never see a partial one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cache/file_system.h"

namespace jit {

/// The failed call and its errno; `step` is empty if none failed.
struct FileFailure {
  std::string step;
  int error = 0;

  explicit operator bool() const { return !step.empty(); }
  std::string message() const;  ///< e.g. "fsync: No space left on device"
};

/// Creates `folder` (relative to `directory`) with mode 0700, and its missing parents; succeeds if it exists.
FileFailure create_folder(FileSystem& file_system, int directory, const std::string& folder);

/// A name for a file being written, unpredictable and unique across processes. Empty, with errno set, if the
/// system provides no random bytes.
std::string temporary_name();

/// Whether the name is that of a temporary file, being written or abandoned.
bool is_temporary(const std::string& name);

/// Writes all bytes to an open file.
FileFailure write_all(FileSystem& file_system, int file, std::span<const std::byte> bytes);

/// Writes `bytes` to a new file of a random name in `folder` (relative to `directory`; created when missing),
/// flushes it to disk and renames it to `folder`/`name`, replacing an existing file. A failure or crash
/// leaves the old content untouched and at worst a temporary file behind.
FileFailure publish_file(FileSystem& file_system, int directory, const std::string& folder,
                         const std::string& name, std::span<const std::byte> bytes);

/// Removes a temporary file last written more than an hour ago. `path` is relative to `directory`.
void remove_if_abandoned(FileSystem& file_system, int directory, const std::string& path);

/// Removes abandoned temporary files in `folder`, not in its subfolders.
void remove_abandoned(FileSystem& file_system, int directory, const std::string& folder);

/// Reads `size` bytes of an open file; fewer, without a failure, if the file ends earlier.
FileFailure read_file(FileSystem& file_system, int file, std::size_t size, std::vector<std::byte>& bytes);

/// Reads a whole file that the user named. Throws Error (io_error).
std::vector<std::byte> read_named_file(FileSystem& file_system, const std::string& path);

}  // namespace jit
