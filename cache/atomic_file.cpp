#include "cache/atomic_file.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit {
namespace {

constexpr std::string_view temporary_prefix = ".tmp-";
constexpr std::time_t abandoned_after_seconds = 3600;

FileFailure write_and_rename(FileSystem& file_system, int directory, OwnedFile file,
                             const std::string& temporary, const std::string& path,
                             std::span<const std::byte> bytes) {
  if (FileFailure failure = write_all(file_system, file.get(), bytes)) return failure;
  if (file_system.fsync(file.get()) != 0) return {"fsync", errno};
  if (file.reset() != 0) return {"close", errno};
  if (file_system.renameat(directory, temporary.c_str(), directory, path.c_str()) != 0)
    return {"rename", errno};
  return {};
}

[[noreturn]] void throw_io_error(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::io_error, "cache", "path", fmt::format("{}: {}", path, what));
}

}  // namespace

std::string FileFailure::message() const { return step + ": " + std::generic_category().message(error); }

FileFailure create_folder(FileSystem& file_system, int directory, const std::string& folder) {
  const auto is_there = [&] {
    return file_system.mkdirat(directory, folder.c_str(), 0700) == 0 || errno == EEXIST;
  };
  if (is_there()) return {};
  const std::size_t slash = folder.rfind('/');
  if (errno != ENOENT || slash == std::string::npos || slash == 0) return {"mkdir", errno};
  if (FileFailure failure = create_folder(file_system, directory, folder.substr(0, slash))) return failure;
  if (is_there()) return {};
  return {"mkdir", errno};
}

std::string temporary_name() {
  std::uint64_t bits[2];
  if (::getrandom(bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) return {};
  return fmt::format("{}{:016x}{:016x}", temporary_prefix, bits[0], bits[1]);
}

bool is_temporary(const std::string& name) {
  constexpr std::size_t digits = 32;
  return name.size() == temporary_prefix.size() + digits && name.starts_with(temporary_prefix) &&
         name.find_first_not_of("0123456789abcdef", temporary_prefix.size()) == std::string::npos;
}

FileFailure write_all(FileSystem& file_system, int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = file_system.write(file, bytes.data(), bytes.size());
    if (written < 0) return {"write", errno};
    if (written == 0) return {"write", EIO};
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

FileFailure publish_file(FileSystem& file_system, int directory, const std::string& folder,
                         const std::string& name, std::span<const std::byte> bytes) {
  const std::string random = temporary_name();
  if (random.empty()) return {"getrandom", errno};
  const std::string temporary = folder + "/" + random;
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int opened = file_system.openat(directory, temporary.c_str(), flags, 0600);
  if (opened < 0 && errno == ENOENT) {
    if (FileFailure failure = create_folder(file_system, directory, folder)) return failure;
    opened = file_system.openat(directory, temporary.c_str(), flags, 0600);
  }
  if (opened < 0) return {"open", errno};
  FileFailure failure = write_and_rename(file_system, directory, OwnedFile(file_system, opened), temporary,
                                         folder + "/" + name, bytes);
  if (failure) file_system.unlinkat(directory, temporary.c_str(), 0);
  return failure;
}

void remove_if_abandoned(FileSystem& file_system, int directory, const std::string& path) {
  struct stat status;
  if (file_system.fstatat(directory, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (std::time(nullptr) - status.st_mtime < abandoned_after_seconds) return;
  file_system.unlinkat(directory, path.c_str(), 0);
}

void remove_abandoned(FileSystem& file_system, int directory, const std::string& folder) {
  std::vector<std::string> names;
  file_system.read_directory(directory, folder.c_str(), names);
  for (const std::string& name : names) {
    if (is_temporary(name)) remove_if_abandoned(file_system, directory, folder + "/" + name);
  }
}

FileFailure read_file(FileSystem& file_system, int file, std::size_t size, std::vector<std::byte>& bytes) {
  bytes.resize(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = file_system.read(file, bytes.data() + done, size - done);
    if (count < 0) return {"read", errno};
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return {};
}

std::vector<std::byte> read_named_file(FileSystem& file_system, const std::string& path) {
  const int opened = file_system.openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) throw_io_error(path, FileFailure{"open", errno}.message());
  const OwnedFile file(file_system, opened);
  struct stat status;
  if (file_system.fstat(file.get(), &status) != 0)
    throw_io_error(path, FileFailure{"fstat", errno}.message());
  if (!S_ISREG(status.st_mode)) throw_io_error(path, "not a regular file");
  std::vector<std::byte> bytes;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (const FileFailure failure = read_file(file_system, file.get(), size, bytes)) {
    throw_io_error(path, failure.message());
  }
  return bytes;
}

}  // namespace jit
