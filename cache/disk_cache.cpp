#include "cache/disk_cache.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "cache/atomic_file.h"

namespace jit {
namespace {

constexpr std::time_t touch_interval_seconds = 600;
constexpr std::uint64_t max_entry_bytes = std::uint64_t{256} << 20;
// A tuner compiles up to 9 kernels concurrently; the probability that two of them share a lock, and wait, is
// below 1 %.
constexpr std::uint64_t lock_count = 4096;

bool is_stale(const struct stat& status) {
  const std::time_t age = std::time(nullptr) - status.st_mtime;
  return age > touch_interval_seconds || age < -touch_interval_seconds;  // a clock may have been set back
}

}  // namespace

DiskCache::DiskCache(DiskCacheOptions options)
    : options_(std::move(options)),
      file_system_(options_.file_system == nullptr ? real_file_system() : *options_.file_system) {
  if (!options_.directory.empty()) {
    refusal_ = distrusted_location(options_.directory);
    if (refusal_.empty()) refusal_ = open_or_create_directory(file_system_, options_.directory).refusal;
    writable_ = refusal_.empty();
    if (writable_) layers_.push_back({options_.directory, Ownership::user});
    if (!writable_) warn_once("nothing is kept on disk: " + refusal_);
  }
  for (const std::string& path : options_.readonly_layers) {
    std::string refusal = distrusted_location(path);
    if (refusal.empty())
      refusal = open_trusted_directory(file_system_, path, Ownership::user_or_root).refusal;
    if (refusal.empty()) {
      layers_.push_back({path, Ownership::user_or_root});
    } else {
      warn("cache layer is not used: " + refusal);
    }
  }
}

void DiskCache::warn(const std::string& message) const {
  if (options_.observer) options_.observer({.kind = Event::Kind::warning, .message = message});
}

void DiskCache::warn_once(const std::string& message) const {
  if (!warned_.exchange(true)) warn(message);
}

std::optional<Entry> DiskCache::load(const Key& key) const { return load(key, true); }

std::optional<Entry> DiskCache::load_again(const Key& key) const { return load(key, false); }

std::optional<Entry> DiskCache::load(const Key& key, bool report_damage) const {
  const std::string name = key.digest().hex();
  for (const Layer& layer : layers_) {
    Found found = find(layer, name);
    if (!found.damage.empty() && report_damage) warn(found.damage);
    if (!found.failure.empty()) warn_once("a cached kernel cannot be read: " + found.failure);
    if (found.entry && found.entry->key_text == key.text()) return std::move(found.entry);
  }
  return std::nullopt;
}

DiskCache::Found DiskCache::find(const Layer& layer, const std::string& digest_hex) const {
  const OpenedDirectory directory = open_trusted_directory(file_system_, layer.path, layer.ownership);
  if (directory.error == ENOENT) return {};
  if (!directory.refusal.empty()) return {{}, {}, directory.refusal};
  const std::string path = entry_folder(digest_hex) + "/" + entry_name(digest_hex);
  return read_entry(layer, directory.file.get(), path, layer.ownership == Ownership::user);
}

DiskCache::Found DiskCache::read_entry(const Layer& layer, int directory, const std::string& path,
                                       bool touch) const {
  const auto damaged = [&](const std::string& why) {
    return Found{{}, fmt::format("cached kernel {}/{} is not used: {}", layer.path, path, why), {}};
  };
  const TrustedFile file = read_trusted_file(file_system_, directory, path, layer.ownership, max_entry_bytes);
  if (file.absent) return {};
  if (!file.failure.empty()) return {{}, {}, file.failure};
  if (!file.distrust.empty()) return damaged(file.distrust);
  std::optional<Entry> entry = decode(file.bytes);
  if (!entry) return damaged("its content is damaged");
  if (touch && is_stale(file.status)) {
    const timespec now_and_now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    file_system_.futimens(file.file.get(), now_and_now);  // a failure only makes the entry look older
  }
  return {std::move(entry), {}, {}};
}

void DiskCache::store(const Key& key, const Entry& entry) {
  if (!writable_ || entry.code.empty()) return;
  const std::vector<std::byte> bytes = encode(key.text(), entry.metadata, entry.code);
  const std::string failure = try_store(key.digest(), bytes);
  if (!failure.empty()) warn_once("a compiled kernel could not be kept on disk: " + failure);
}

// Why the bytes were not stored; empty if they were.
std::string DiskCache::try_store(const Digest& digest, std::span<const std::byte> bytes) {
  if (bytes.size() > std::min(max_entry_bytes, options_.max_bytes)) {
    return fmt::format("{} bytes are more than the cache may hold", bytes.size());
  }
  const OpenedDirectory directory = open_or_create_directory(file_system_, options_.directory);
  if (!directory.refusal.empty()) return directory.refusal;
  const std::string name = digest.hex();
  const FileFailure failure =
      publish_file(file_system_, directory.file.get(), entry_folder(name), entry_name(name), bytes);
  if (failure) return failure.message();
  evict_when_due(directory.file.get(), bytes.size());
  return {};
}

// Scans the folder rarely: each process stores up to a twentieth of the limits, or the remaining room if
// smaller, between scans. A scan evicts down to nine tenths if a limit is exceeded.
void DiskCache::evict_when_due(int directory, std::uint64_t stored_bytes) {
  const auto charge = static_cast<std::int64_t>(charged_bytes(stored_bytes));
  const bool bytes_left = room_bytes_.fetch_sub(charge) > charge;
  const bool entries_left = room_entries_.fetch_sub(1) > 1;
  if (bytes_left && entries_left) return;
  scan_wanted_ = true;
  while (scan_wanted_) {
    const std::unique_lock scanning(scan_mutex_, std::try_to_lock);
    if (!scanning) return;  // another thread is scanning and rechecks scan_wanted_ when done
    if (scan_wanted_.exchange(false)) scan_and_evict(directory);
  }
}

void DiskCache::scan_and_evict(int directory) {
  const std::int64_t bytes_before = room_bytes_;
  const std::int64_t entries_before = room_entries_;
  const Usage cap{options_.max_bytes, options_.max_entries};
  std::vector<StoredFile> files = scan_entries(file_system_, directory, true);
  Usage usage = usage_of(files);
  if (usage.bytes > cap.bytes || usage.entries > cap.entries) {
    const Usage target{cap.bytes / 10 * 9, cap.entries - cap.entries / 10};
    evict(file_system_, directory, std::move(files), target);
    usage = {std::min(usage.bytes, target.bytes), std::min(usage.entries, target.entries)};
  }
  // Added, not assigned: entries stored by other threads during the scan stay subtracted.
  room_bytes_ += static_cast<std::int64_t>(std::min(cap.bytes / 20, cap.bytes - usage.bytes)) - bytes_before;
  room_entries_ +=
      static_cast<std::int64_t>(std::min(cap.entries / 20, cap.entries - usage.entries)) - entries_before;
}

FileLock DiskCache::lock(const Key& key, std::chrono::milliseconds timeout) const {
  if (!writable_) return {};
  const OpenedDirectory directory = open_or_create_directory(file_system_, options_.directory);
  if (!directory.refusal.empty()) return {};
  const std::string name = fmt::format("{:03x}", key.digest().low % lock_count);
  return acquire_lock(file_system_, directory.file.get(), "v1/locks", name, timeout);
}

}  // namespace jit
