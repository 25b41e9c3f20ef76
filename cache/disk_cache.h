// Kernels on disk, shared by processes. A hit takes no lock; a file is either whole or absent; any problem is
// a miss and at most one event, never an exception. docs/cache.md has the guarantees.
//
// To compile each kernel once among many processes:
//   if (auto entry = cache.load(key)) return *entry;
//   const FileLock lock = cache.lock(key);
//   if (auto entry = cache.load(key)) return *entry;   // someone else was faster
//   compile; cache.store(key, entry); use the own bytes, whatever became of the file.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/observer.h>

#include "cache/cache_directory.h"
#include "cache/entry.h"
#include "cache/eviction.h"
#include "cache/file_lock.h"
#include "cache/file_system.h"
#include "cache/import_report.h"
#include "cache/key.h"

namespace jit {

struct DiskCacheOptions {
  /// Writable layer, absolute; created when missing. Empty: none.
  std::string directory = {};
  /// Pre-built folders of the same layout, absolute; searched in order after `directory`, never written.
  std::vector<std::string> readonly_layers = {};
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< limit of this layer, in blocks of 4 KiB
  std::size_t max_entries = 100'000;                 ///< limit on its number of entries
  Observer observer = {};                            ///< gets the warnings
  FileSystem* file_system = nullptr;                 ///< not owned; null: the real one
};

/// One entry in a listing.
struct EntryInfo {
  std::string digest;  ///< 32 hexadecimal digits, Digest::hex() of the key
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point last_used;  ///< up to ten minutes too early
  std::string metadata;                             ///< Entry::metadata; empty unless the entry is whole
  std::string layer;                                ///< folder of its layer
  std::string path;                                 ///< absolute path of the file
  bool damaged = false;                             ///< content does not match the name, or is not trusted
  std::string unreadable;                           ///< why its file could not be read; empty if it was
};

/// Thread safe, and safe against any number of other processes using the same folder.
class DiskCache {
 public:
  /// Creates the folder when missing. One that cannot be created or trusted is not used: one warning, and
  /// `refusal` says why.
  explicit DiskCache(DiskCacheOptions options);

  /// Whether there is a writable layer.
  bool writable() const { return writable_; }
  /// Why there is no writable layer; empty if there is one, or none was requested.
  const std::string& refusal() const { return refusal_; }

  /// The entry of `key` from the first layer that has it whole. Takes no lock and writes nothing, but for the
  /// time of last use (at most every ten minutes). A damaged entry is a miss and one warning; the next
  /// `store` replaces it.
  std::optional<Entry> load(const Key& key) const;
  /// The entry of `key` after a miss, for a caller that now holds the lock: another process may have stored
  /// it since. Does not warn of damage again.
  std::optional<Entry> load_again(const Key& key) const;

  /// Stores the entry in the writable layer, replacing an older one, and evicts the least recently used if a
  /// limit is exceeded. Stores the key's text; does not read `entry.key_text`. Only the first failure of this
  /// cache gives a warning. An entry without code, or larger than the limit, is not stored.
  void store(const Key& key, const Entry& entry);

  /// Locks the key, so that other processes and threads do not compute the same entry meanwhile. All keys
  /// share 4,096 locks, so a different key occasionally waits, too; hold one at a time. If the lock times
  /// out, proceed without it.
  FileLock lock(const Key& key, std::chrono::milliseconds timeout = std::chrono::seconds(30)) const;

  /// All entries of all layers, by digest. Reads every file; skips files removed meanwhile.
  std::vector<EntryInfo> list() const;
  /// The damaged entries of list().
  std::vector<EntryInfo> verify() const;
  /// The entry whose digest begins with these hexadecimal digits (lower or upper case), from the first layer
  /// that has it; nothing when there is none or it is damaged. Throws Error (invalid_argument) when several
  /// digests match.
  std::optional<Entry> load_by_digest(std::string_view hex_prefix) const;

  /// Removes damaged entries from the writable layer (not unreadable ones), then the least recently used
  /// until at most `max_bytes` remain. Returns the number of removed entries. Throws Error (io_error) if a
  /// file could not be removed, after removing the others.
  std::size_t prune(std::uint64_t max_bytes);
  /// Removes all entries of the writable layer, with the same errors. Returns their number.
  std::size_t clear();

  /// Writes all whole entries of all layers to one file. Returns their number. Throws Error (io_error).
  std::size_t export_to(const std::string& path) const;
  /// Adds the entries of an exported file, each checked. Throws Error (io_error) if the file cannot be read,
  /// there is no writable layer, or an entry cannot be stored.
  ImportReport import_from(const std::string& path);

 private:
  struct Layer {
    std::string path;
    Ownership ownership = Ownership::user;
  };
  // A layer's result for a digest: the entry, or why an existing file cannot be used, or nothing.
  struct Found {
    std::optional<Entry> entry;
    std::string damage;
    std::string failure;

    bool is_nothing() const { return !entry && damage.empty() && failure.empty(); }
  };

  void warn(const std::string& message) const;
  void warn_once(const std::string& message) const;
  std::optional<Entry> load(const Key& key, bool report_damage) const;
  Found find(const Layer& layer, const std::string& digest_hex) const;
  void visit(const std::function<void(const Layer&, int directory, const StoredFile&)>& visitor) const;
  Found read_entry(const Layer& layer, int directory, const std::string& path, bool touch) const;
  Found read_named(const Layer& layer, int directory, const StoredFile& file) const;
  std::string try_store(const Digest& digest, std::span<const std::byte> bytes);
  void evict_when_due(int directory, std::uint64_t stored_bytes);
  void scan_and_evict(int directory);

  DiskCacheOptions options_;
  FileSystem& file_system_;
  std::vector<Layer> layers_;  // in search order; the writable layer, if any, is first
  bool writable_ = false;
  std::string refusal_;
  mutable std::atomic<bool> warned_ = false;

  // Bytes and entries that may be stored before the next scan of the folder (evict_when_due).
  std::mutex scan_mutex_;
  std::atomic<bool> scan_wanted_ = false;
  std::atomic<std::int64_t> room_bytes_ = 0;
  std::atomic<std::int64_t> room_entries_ = 0;
};

}  // namespace jit
