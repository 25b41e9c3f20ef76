// System calls of the caches, one virtual function each, so that tests can make any of them fail.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace jit {

/// The real system calls: each returns its result (-1 and errno on failure), and restarts on EINTR where that
/// is safe. Stateless, hence thread safe; derived classes must be thread safe, too.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int openat(int directory, const char* path, int flags, mode_t mode = 0);
  virtual int close(int file);
  virtual ssize_t read(int file, void* bytes, std::size_t size);
  virtual ssize_t write(int file, const void* bytes, std::size_t size);
  virtual int fsync(int file);
  virtual int fstat(int file, struct stat* result);
  virtual int fstatat(int directory, const char* path, struct stat* result, int flags);
  virtual int futimens(int file, const timespec times[2]);
  virtual int flock(int file, int operation);  ///< not restarted: callers that wait check a deadline
  virtual int mkdirat(int directory, const char* path, mode_t mode);
  virtual int renameat(int from_directory, const char* from, int to_directory, const char* to);
  virtual int unlinkat(int directory, const char* path, int flags);
  /// Puts the names in folder `path` (except "." and "..") into `names`, in no order; 0 or -1.
  virtual int read_directory(int directory, const char* path, std::vector<std::string>& names);
};

/// The one instance that makes the real calls.
FileSystem& real_file_system();

/// Owns a file descriptor of a FileSystem; move-only.
class OwnedFile {
 public:
  OwnedFile() = default;
  OwnedFile(FileSystem& file_system, int file) : file_system_(&file_system), file_(file) {}
  OwnedFile(OwnedFile&& other) noexcept;
  OwnedFile& operator=(OwnedFile&& other) noexcept;
  ~OwnedFile() { reset(); }

  explicit operator bool() const { return file_ >= 0; }
  int get() const { return file_; }

  /// Closes the file now, if open; returns close(2)'s result.
  int reset();

 private:
  FileSystem* file_system_ = nullptr;
  int file_ = -1;
};

}  // namespace jit
