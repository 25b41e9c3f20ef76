// Reads and publishes whole files: no reader ever sees half of one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cache/file_system.h"

namespace jit {

/// Which call failed and how; `step` is empty when none did.
struct FileFailure {
  std::string step;
  int error = 0;

  explicit operator bool() const { return !step.empty(); }
  std::string message() const;  ///< e.g. "fsync: No space left on device"
};

/// Creates `folder` (relative to `directory`) with mode 0700, and its missing parents; no failure when it is
/// there already.
FileFailure create_folder(FileSystem& file_system, int directory, const std::string& folder);

/// A name for a file that is being written: never predictable and never equal in two processes. Empty (and errno
/// set) when the system gives no random bytes.
std::string temporary_name();

/// Whether a file of this name is one that is being written, or was left behind.
bool is_temporary(const std::string& name);

/// Writes all bytes to an open file.
FileFailure write_all(FileSystem& file_system, int file, std::span<const std::byte> bytes);

/// Writes `bytes` to a new file of a random name in `folder` (relative to `directory`; created when missing),
/// flushes it to the disk and renames it to `folder`/`name`, replacing what was there. After a failure or a
/// crash the old content is untouched; at worst a temporary file stays behind.
FileFailure publish_file(FileSystem& file_system, int directory, const std::string& folder,
                         const std::string& name, std::span<const std::byte> bytes);

/// Removes a temporary file whose last write is an hour ago. `path` is relative to `directory`.
void remove_if_abandoned(FileSystem& file_system, int directory, const std::string& path);

/// Removes such files that crashed writers have left in `folder`, not those below it.
void remove_abandoned(FileSystem& file_system, int directory, const std::string& folder);

/// Reads `size` bytes of an open file. A file that ends earlier gives fewer bytes and no failure.
FileFailure read_file(FileSystem& file_system, int file, std::size_t size, std::vector<std::byte>& bytes);

/// Reads a whole file that the user named. Throws Error (io_error).
std::vector<std::byte> read_named_file(FileSystem& file_system, const std::string& path);

}  // namespace jit
