#include "cache/file_system.h"

#include <dirent.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

namespace jit {
namespace {

template <class Call>
auto restarted(Call call) {
  while (true) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace

int FileSystem::openat(int directory, const char* path, int flags, mode_t mode) {
  return restarted([&] { return ::openat(directory, path, flags, mode); });
}
int FileSystem::close(int file) { return ::close(file); }
ssize_t FileSystem::read(int file, void* bytes, std::size_t size) {
  return restarted([&] { return ::read(file, bytes, size); });
}
ssize_t FileSystem::write(int file, const void* bytes, std::size_t size) {
  return restarted([&] { return ::write(file, bytes, size); });
}
int FileSystem::fsync(int file) {
  return restarted([&] { return ::fsync(file); });
}
int FileSystem::fstat(int file, struct stat* result) { return ::fstat(file, result); }
int FileSystem::fstatat(int directory, const char* path, struct stat* result, int flags) {
  return ::fstatat(directory, path, result, flags);
}
int FileSystem::futimens(int file, const timespec times[2]) { return ::futimens(file, times); }
int FileSystem::flock(int file, int operation) { return ::flock(file, operation); }
int FileSystem::mkdirat(int directory, const char* path, mode_t mode) {
  return ::mkdirat(directory, path, mode);
}
int FileSystem::renameat(int from_directory, const char* from, int to_directory, const char* to) {
  return ::renameat(from_directory, from, to_directory, to);
}
int FileSystem::unlinkat(int directory, const char* path, int flags) {
  return ::unlinkat(directory, path, flags);
}

int FileSystem::read_directory(int directory, const char* path, std::vector<std::string>& names) {
  const int file = ::openat(directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return -1;
  DIR* stream = ::fdopendir(file);
  if (stream == nullptr) {
    ::close(file);
    return -1;
  }
  errno = 0;
  while (const dirent* item = ::readdir(stream)) {
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  ::closedir(stream);
  errno = error;
  return error == 0 ? 0 : -1;
}

FileSystem& real_file_system() {
  static FileSystem real;
  return real;
}

OwnedFile::OwnedFile(OwnedFile&& other) noexcept
    : file_system_(other.file_system_), file_(std::exchange(other.file_, -1)) {}

OwnedFile& OwnedFile::operator=(OwnedFile&& other) noexcept {
  if (this != &other) {
    reset();
    file_system_ = other.file_system_;
    file_ = std::exchange(other.file_, -1);
  }
  return *this;
}

int OwnedFile::reset() { return file_ < 0 ? 0 : file_system_->close(std::exchange(file_, -1)); }

}  // namespace jit
