#include "cache/cache_directory.h"

#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cache/atomic_file.h"

namespace jit {
namespace {

constexpr const char* folder_name = "jit-attention";

// The path without "." and redundant slashes: a trailing one would make open follow a symbolic link.
std::string normal(const std::string& path) {
  const std::size_t name = path.find_first_not_of('/');
  if (name == std::string::npos) return "/";
  const std::string one_slash = name > 1 ? path.substr(name - 1) : path;
  const std::filesystem::path result = std::filesystem::path(one_slash).lexically_normal();
  return result.has_filename() ? result.string() : result.parent_path().string();
}

bool is_home(const std::string& path) { return path.starts_with('/') && normal(path) != "/"; }

bool is_permitted(const struct stat& status, Ownership ownership) {
  const bool owned =
      status.st_uid == geteuid() || (ownership == Ownership::user_or_root && status.st_uid == 0);
  return owned && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

CacheDirectory as_given(const std::string& path, const std::string& by) {
  if (!path.starts_with('/'))
    return {{}, fmt::format("{} gives '{}', which is not an absolute path", by, path)};
  return {normal(path), by};
}

// The first folder above `path` that anybody could replace; empty if none.
std::string open_to_all(const std::filesystem::path& path) {
  for (std::filesystem::path above = path.parent_path();; above = above.parent_path()) {
    struct stat status;
    if (::stat(above.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) != 0 &&
        (status.st_mode & S_ISVTX) == 0) {
      return above.string();
    }
    if (above == above.parent_path()) return {};
  }
}

}  // namespace

std::string password_home() {
  std::vector<char> buffer(16384);
  passwd record;
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &record, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return {};
  return found->pw_dir == nullptr ? std::string() : std::string(found->pw_dir);
}

CacheDirectory choose_cache_directory(const std::string& explicit_path, const Environment& environment,
                                      const std::function<std::string()>& home_of_user) {
  const auto variable = [&](const char* name) { return environment ? environment(name) : std::string(); };
  if (!explicit_path.empty()) return as_given(explicit_path, "the cache directory option");
  if (const std::string path = variable("JIT_ATTENTION_CACHE_DIR"); !path.empty()) {
    return as_given(path, "JIT_ATTENTION_CACHE_DIR");
  }
  if (const std::string path = variable("XDG_CACHE_HOME"); path.starts_with('/')) {
    return {normal(path + "/" + folder_name), "XDG_CACHE_HOME"};
  }
  const std::string below_home = std::string("/.cache/") + folder_name;
  if (const std::string home = variable("HOME"); is_home(home)) return {normal(home + below_home), "HOME"};
  if (const std::string home = home_of_user(); is_home(home)) {
    return {normal(home + below_home), "the home folder in the password database"};
  }
  return {{}, "there is no home folder: set JIT_ATTENTION_CACHE_DIR"};
}

OpenedDirectory open_trusted_directory(FileSystem& file_system, const std::string& path,
                                       Ownership ownership) {
  const std::string folder = normal(path);
  const int opened =
      file_system.openat(AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) {
    const int error = errno;
    const std::string hint = error == ELOOP || error == ENOTDIR ? " (symbolic links are not followed)" : "";
    return {{}, error, fmt::format("{}: {}{}", path, std::generic_category().message(error), hint)};
  }
  OwnedFile file(file_system, opened);
  struct stat status;
  if (file_system.fstat(file.get(), &status) != 0) {
    const int error = errno;
    return {{}, error, fmt::format("{}: {}", path, std::generic_category().message(error))};
  }
  if (!is_permitted(status, ownership)) {
    return {{},
            0,
            fmt::format("{} belongs to another user or is writable by others (owner {}, mode {:o})", path,
                        status.st_uid, status.st_mode & 07777)};
  }
  return {std::move(file), 0, {}};
}

OpenedDirectory open_or_create_directory(FileSystem& file_system, const std::string& path) {
  OpenedDirectory opened = open_trusted_directory(file_system, path, Ownership::user);
  if (opened.error != ENOENT) return opened;
  if (const FileFailure failure = create_folder(file_system, AT_FDCWD, normal(path)))
    return {{}, failure.error, fmt::format("{}: {}", path, failure.message())};
  return open_trusted_directory(file_system, path, Ownership::user);
}

std::string distrusted_location(const std::string& path) {
  if (!path.starts_with('/')) return fmt::format("'{}' is not an absolute path", path);
  std::error_code unresolved;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, unresolved);
  std::string open = open_to_all(normal(path));
  if (open.empty() && !unresolved) open = open_to_all(real);
  if (open.empty()) return {};
  return fmt::format("{} lies below {}, which everybody may write", path, open);
}

TrustedFile read_trusted_file(FileSystem& file_system, int directory, const std::string& path,
                              Ownership ownership, std::uint64_t max_bytes) {
  TrustedFile result;
  // O_NONBLOCK: opening a named pipe must not block.
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int opened = file_system.openat(directory, path.c_str(), flags);
  if (opened < 0) {
    const int error = errno;
    if (error == ENOENT) {
      result.absent = true;
    } else if (error == ELOOP) {
      result.distrust = "it is a symbolic link";
    } else {
      result.failure = FileFailure{"open", error}.message();
    }
    return result;
  }
  result.file = OwnedFile(file_system, opened);
  if (file_system.fstat(opened, &result.status) != 0) {
    result.failure = FileFailure{"fstat", errno}.message();
  } else if (!S_ISREG(result.status.st_mode) || !is_permitted(result.status, ownership)) {
    result.distrust = "it is not a file that only its user can write";
  } else if (static_cast<std::uint64_t>(result.status.st_size) > max_bytes) {
    result.distrust = "it is too large";
  } else if (const FileFailure failure = read_file(
                 file_system, opened, static_cast<std::size_t>(result.status.st_size), result.bytes)) {
    result.failure = failure.message();
  }
  return result;
}

}  // namespace jit
