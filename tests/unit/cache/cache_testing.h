// Shared by tests of the cache: collected warnings, file systems that fail on demand.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <jit/observer.h>

#include "cache/disk_cache.h"
#include "cache/file_system.h"
#include "tests/support/cache_entries.h"
#include "tests/support/fresh_folder.h"

namespace jit::testing {

/// Whether this build is too slow for the limits on time: sanitized or not optimized.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
inline constexpr bool slow_build = true;
#else
inline constexpr bool slow_build = false;
#endif

/// Collects the messages of warnings, from any thread.
class Warnings {
 public:
  Observer observer() {
    return [this](const Event& event) {
      const std::lock_guard lock(mutex_);
      if (event.kind == Event::Kind::warning) messages_.push_back(event.message);
    };
  }
  std::vector<std::string> messages() const {
    const std::lock_guard lock(mutex_);
    return messages_;
  }
  std::size_t count() const { return messages().size(); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

/// A file system with one gate before every call: `fails` returns the errno to fail with, or 0.
class GatedFileSystem : public FileSystem {
 public:
  int openat(int directory, const char* path, int flags, mode_t mode) override {
    return gate((flags & O_CREAT) != 0) ? -1 : FileSystem::openat(directory, path, flags, mode);
  }
  // The descriptor is closed in any case, as the real call does.
  int close(int file) override {
    const int result = FileSystem::close(file);
    return gate(false) ? -1 : result;
  }
  ssize_t read(int file, void* bytes, std::size_t size) override {
    return gate(false) ? -1 : FileSystem::read(file, bytes, size);
  }
  ssize_t write(int file, const void* bytes, std::size_t size) override {
    return gate(true) ? -1 : FileSystem::write(file, bytes, size);
  }
  int fsync(int) override { return gate(true) ? -1 : 0; }  // the tests do not wait for the disk
  int fstat(int file, struct stat* result) override {
    return gate(false) ? -1 : FileSystem::fstat(file, result);
  }
  int fstatat(int directory, const char* path, struct stat* result, int flags) override {
    return gate(false) ? -1 : FileSystem::fstatat(directory, path, result, flags);
  }
  int futimens(int file, const timespec times[2]) override {
    return gate(true) ? -1 : FileSystem::futimens(file, times);
  }
  int flock(int file, int operation) override {
    return gate(false) ? -1 : FileSystem::flock(file, operation);
  }
  int mkdirat(int directory, const char* path, mode_t mode) override {
    return gate(true) ? -1 : FileSystem::mkdirat(directory, path, mode);
  }
  int renameat(int from_directory, const char* from, int to_directory, const char* to) override {
    return gate(true) ? -1 : FileSystem::renameat(from_directory, from, to_directory, to);
  }
  int unlinkat(int directory, const char* path, int flags) override {
    return gate(true) ? -1 : FileSystem::unlinkat(directory, path, flags);
  }
  int read_directory(int directory, const char* path, std::vector<std::string>& names) override {
    return gate(false) ? -1 : FileSystem::read_directory(directory, path, names);
  }

 protected:
  virtual int fails(bool changes_something) = 0;

 private:
  bool gate(bool changes_something) {
    const int error = fails(changes_something);
    if (error != 0) errno = error;
    return error != 0;
  }
};

/// Fails call number `first` (from 0) with `error`, or that and all later ones.
class FaultyFileSystem : public GatedFileSystem {
 public:
  FaultyFileSystem(int error, int first, bool lasting) : error_(error), first_(first), lasting_(lasting) {}
  bool reached() const { return calls_ > first_; }

 protected:
  int fails(bool) override {
    const int call = calls_++;
    return call == first_ || (lasting_ && call > first_) ? error_ : 0;
  }

 private:
  int error_;
  int first_;
  bool lasting_;
  std::atomic<int> calls_ = 0;
};

/// Refuses every change with EROFS, as a read-only mount does.
class ReadOnlyFileSystem : public GatedFileSystem {
 public:
  int changes() const { return changes_; }

 protected:
  int fails(bool changes_something) override {
    if (changes_something) ++changes_;
    return changes_something ? EROFS : 0;
  }

 private:
  std::atomic<int> changes_ = 0;
};

/// Does to every entry file, before it is opened, what a test wants.
class EntryFileSystem : public FileSystem {
 public:
  int openat(int directory, const char* path, int flags, mode_t mode) override {
    const bool is_entry = std::string_view(path).ends_with(".bin");
    if (is_entry && fails(directory, path)) return -1;
    return FileSystem::openat(directory, path, flags, mode);
  }

 protected:
  /// Whether opening it fails; then errno says why.
  virtual bool fails(int directory, const char* path) = 0;
};

/// Moves at most `most` bytes per read and write.
class ShortFileSystem : public FileSystem {
 public:
  explicit ShortFileSystem(std::size_t most) : most_(most) {}
  ssize_t read(int file, void* bytes, std::size_t size) override {
    return FileSystem::read(file, bytes, std::min(size, most_));
  }
  ssize_t write(int file, const void* bytes, std::size_t size) override {
    return FileSystem::write(file, bytes, std::min(size, most_));
  }

 private:
  std::size_t most_;
};

/// Does not wait for the disk; for tests that write thousands of files.
class HastyFileSystem : public FileSystem {
 public:
  int fsync(int) override { return 0; }
};

/// Reports another owner for every file and folder.
class ForeignFileSystem : public FileSystem {
 public:
  int fstat(int file, struct stat* result) override {
    const int status = FileSystem::fstat(file, result);
    result->st_uid = geteuid() + 1;
    return status;
  }
};

inline void set_age(const std::string& path, int seconds) {
  const timespec then{std::time(nullptr) - seconds, 0};
  const timespec times[2] = {then, then};
  if (utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) throw std::runtime_error("utimensat failed");
}

/// Bytes of all files below `path`, in whole blocks of 4 KiB.
inline std::uintmax_t size_of_folder(const std::string& path) {
  std::uintmax_t total = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(path)) {
    if (item.is_regular_file()) total += (item.file_size() + 4095) / 4096 * 4096;
  }
  return total;
}

/// CPU time of this thread in microseconds.
inline double cpu_microseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

}  // namespace jit::testing
