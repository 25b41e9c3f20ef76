// Administrative functions of DiskCache: listing, checking, pruning, moving entries between machines.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/output_file.h>

#include "cache/archive.h"
#include "cache/atomic_file.h"
#include "cache/disk_cache.h"

namespace jit {
namespace {

std::chrono::system_clock::time_point to_time_point(const timespec& time) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)));
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace

// Calls `visitor` for every entry file, whole or not, layer by layer.
void DiskCache::visit(const std::function<void(const Layer&, int, const StoredFile&)>& visitor) const {
  for (const Layer& layer : layers_) {
    const OpenedDirectory directory = open_trusted_directory(file_system_, layer.path, layer.ownership);
    if (!directory.refusal.empty()) continue;
    for (const StoredFile& file : scan_entries(file_system_, directory.file.get(), false)) {
      visitor(layer, directory.file.get(), file);
    }
  }
}

// The entry in a file, if the file's name matches its key.
DiskCache::Found DiskCache::read_named(const Layer& layer, int directory, const StoredFile& file) const {
  Found found = read_entry(layer, directory, file.path, false);
  if (found.entry && digest(found.entry->key_text).hex() != file.digest)
    return {{}, "it is the entry of another key", {}};
  return found;
}

std::vector<EntryInfo> DiskCache::list() const {
  std::vector<EntryInfo> infos;
  visit([&](const Layer& layer, int directory, const StoredFile& file) {
    Found found = read_named(layer, directory, file);
    if (found.is_nothing()) return;
    infos.push_back({.digest = file.digest,
                     .bytes = file.bytes,
                     .last_used = to_time_point(file.modified),
                     .metadata = found.entry ? std::move(found.entry->metadata) : std::string(),
                     .layer = layer.path,
                     .path = layer.path + "/" + file.path,
                     .damaged = !found.damage.empty(),
                     .unreadable = std::move(found.failure)});
  });
  std::stable_sort(infos.begin(), infos.end(),
                   [](const auto& a, const auto& b) { return a.digest < b.digest; });
  return infos;
}

std::vector<EntryInfo> DiskCache::verify() const {
  std::vector<EntryInfo> infos = list();
  std::erase_if(infos, [](const EntryInfo& info) { return !info.damaged; });
  return infos;
}

std::optional<Entry> DiskCache::load_by_digest(std::string_view hex_prefix) const {
  const std::string prefix = lower(hex_prefix);
  std::map<std::string, const Layer*> matches;
  visit([&](const Layer& layer, int, const StoredFile& file) {
    if (file.digest.starts_with(prefix)) matches.try_emplace(file.digest, &layer);
  });
  if (matches.size() > 1) {
    throw Error(
        ErrorCode::invalid_argument, "cache", "digest",
        fmt::format("{} cached kernels begin with '{}': give more digits", matches.size(), hex_prefix));
  }
  if (matches.empty()) return std::nullopt;
  const auto& [name, layer] = *matches.begin();
  return find(*layer, name).entry;
}

std::size_t DiskCache::prune(std::uint64_t max_bytes) {
  if (!writable_) return 0;
  const Layer& layer = layers_.front();
  const OpenedDirectory directory = open_trusted_directory(file_system_, layer.path, layer.ownership);
  if (!directory.refusal.empty()) return 0;
  std::vector<StoredFile> files = scan_entries(file_system_, directory.file.get(), true);
  const int folder = directory.file.get();
  Removal removal;
  if (max_bytes > 0) {  // else everything is removed without reading
    std::erase_if(files, [&](const StoredFile& file) {
      if (read_named(layer, folder, file).damage.empty()) return false;
      const Removal of_file = remove_unchanged(file_system_, folder, file);
      removal += of_file;
      return of_file.files > 0;
    });
  }
  const Usage target = max_bytes > 0 ? Usage{max_bytes, options_.max_entries} : Usage{};
  removal += evict(file_system_, folder, std::move(files), target);
  if (removal.failure)
    throw Error(ErrorCode::io_error, "cache", "directory",
                fmt::format("{}: some kernels cannot be removed: {}; {} others were removed", layer.path,
                            removal.failure.message(), removal.files));
  return removal.files;
}

std::size_t DiskCache::clear() { return prune(0); }

std::size_t DiskCache::export_to(const std::string& path) const {
  const OutputFile output(path, &file_system_);
  std::map<std::string, std::vector<std::byte>> entries;  // sorted, so that equal caches export equal files
  visit([&](const Layer& layer, int directory, const StoredFile& file) {
    if (entries.contains(file.digest)) return;
    const Found found = read_named(layer, directory, file);
    if (found.entry) entries.emplace(file.digest, encode(*found.entry));
  });
  std::vector<std::byte> archive;
  for (const auto& [name, bytes] : entries) archive.insert(archive.end(), bytes.begin(), bytes.end());
  output.write({archive});
  return entries.size();
}

ImportReport DiskCache::import_from(const std::string& path) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::io_error, "cache", "path", fmt::format("{} cannot be imported: {}", path, why));
  };
  if (!writable_) fail(refusal_.empty() ? "there is no writable cache folder" : refusal_);
  const std::vector<std::byte> archive = read_named_file(file_system_, path);
  ArchiveContents contents = read_archive(archive);
  for (const ArchiveEntry& entry : contents.entries) {
    const std::string failure = try_store(entry.key, entry.bytes);
    if (!failure.empty()) fail(failure);
  }
  return {contents.entries.size(), std::move(contents.damaged)};
}

}  // namespace jit
