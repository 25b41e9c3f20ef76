#include "cache/eviction.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <tuple>
namespace jit {
namespace {

constexpr const char* entries_root = "v1";
constexpr std::string_view entry_extension = ".bin";
constexpr std::size_t digest_digits = 32;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_entry_name(std::string_view name) {
  return name.size() == digest_digits + entry_extension.size() && name.ends_with(entry_extension) &&
         is_hex(name.substr(0, digest_digits));
}

}  // namespace

std::string entry_folder(const std::string& digest_hex) {
  return std::string(entries_root) + "/" + digest_hex.substr(0, 2);
}

std::string entry_name(const std::string& digest_hex) { return digest_hex + std::string(entry_extension); }

std::vector<StoredFile> scan_entries(FileSystem& file_system, int directory, bool remove_abandoned) {
  std::vector<StoredFile> files;
  std::vector<std::string> folders;
  file_system.read_directory(directory, entries_root, folders);
  for (const std::string& digits : folders) {
    if (digits.size() != 2 || !is_hex(digits)) continue;
    const std::string folder = entry_folder(digits);
    std::vector<std::string> names;
    file_system.read_directory(directory, folder.c_str(), names);
    for (const std::string& name : names) {
      const std::string path = folder + "/" + name;
      if (is_temporary(name) && remove_abandoned) remove_if_abandoned(file_system, directory, path);
      struct stat status;
      if (!is_entry_name(name) ||
          file_system.fstatat(directory, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      files.push_back({name.substr(0, digest_digits), path, status.st_ino,
                       static_cast<std::uint64_t>(status.st_size), status.st_mtim});
    }
  }
  return files;
}

Usage usage_of(const std::vector<StoredFile>& files) {
  Usage usage;
  for (const StoredFile& file : files) usage.bytes += charged_bytes(file.bytes);
  usage.entries = files.size();
  return usage;
}

std::uint64_t charged_bytes(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

Removal& Removal::operator+=(const Removal& other) {
  files += other.files;
  if (!failure) failure = other.failure;
  return *this;
}

Removal remove_unchanged(FileSystem& file_system, int directory, const StoredFile& file) {
  const auto failed = [](const char* step) {
    return errno == ENOENT ? Removal{} : Removal{.failure = {step, errno}};
  };
  struct stat now;
  if (file_system.fstatat(directory, file.path.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0)
    return failed("stat");
  const bool same = now.st_ino == file.inode && static_cast<std::uint64_t>(now.st_size) == file.bytes &&
                    now.st_mtim.tv_sec == file.modified.tv_sec &&
                    now.st_mtim.tv_nsec == file.modified.tv_nsec;
  if (!same) return {};
  return file_system.unlinkat(directory, file.path.c_str(), 0) == 0 ? Removal{.files = 1} : failed("unlink");
}

Removal evict(FileSystem& file_system, int directory, std::vector<StoredFile> files, const Usage& target) {
  const auto age = [](const StoredFile& file) {
    return std::tie(file.modified.tv_sec, file.modified.tv_nsec, file.digest);
  };
  std::sort(files.begin(), files.end(), [&](const auto& a, const auto& b) { return age(a) < age(b); });
  Usage usage = usage_of(files);
  Removal removal;
  for (const StoredFile& file : files) {
    if (usage.bytes <= target.bytes && usage.entries <= target.entries) break;
    removal += remove_unchanged(file_system, directory, file);
    // Counted as removed in either case: the next scan sees a replacement.
    usage.bytes -= charged_bytes(file.bytes);
    --usage.entries;
  }
  return removal;
}

}  // namespace jit
