// Advisory locks between processes. They only save work: going on without one is safe.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "cache/file_system.h"

namespace jit {

/// A lock that may be held; released on destruction. Move-only. Lock files are never deleted, so that all
/// processes lock the same file.
class FileLock {
 public:
  FileLock() = default;
  explicit FileLock(OwnedFile file) : file_(std::move(file)) {}

  /// Whether the lock is held. If not, proceed without it.
  bool held() const { return static_cast<bool>(file_); }

 private:
  OwnedFile file_;  // closing it releases the lock
};

/// Takes an exclusive flock on `folder`/`name` (relative to `directory`; both created when missing, for the
/// user alone). Not held if the file cannot be opened, the file system has no locks, or another holder keeps
/// it longer than `timeout`. A thread must not wait for a lock while it holds another.
FileLock acquire_lock(FileSystem& file_system, int directory, const std::string& folder,
                      const std::string& name, std::chrono::milliseconds timeout);

}  // namespace jit
