// Kernels on disk, shared by processes. A hit takes no lock; a file is either whole or absent; whatever goes
// wrong is a miss and at most one event, never an exception. docs/cache.md has the format and the guarantees.
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
  /// Pre-built folders of the same layout, absolute; asked in order after `directory`, never written.
  std::vector<std::string> readonly_layers = {};
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< cap of the writable layer, files rounded up to 4 KiB
  std::size_t max_entries = 100'000;                 ///< cap on its number of entries
  Observer observer = {};                            ///< gets the warnings
  FileSystem* file_system = nullptr;                 ///< not owned; null: the real one
};

/// One entry as a listing shows it.
struct EntryInfo {
  std::string digest;  ///< 32 hexadecimal digits, Digest::hex() of the key
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point last_used;  ///< up to ten minutes behind
  std::string metadata;                             ///< Entry::metadata; empty unless the entry is whole
  std::string layer;                                ///< folder of the layer that holds it
  std::string path;                                 ///< absolute path of the file
  bool damaged = false;                             ///< not what its name says, or not to be trusted
  std::string unreadable;                           ///< why its file could not be read; empty when it was
};

/// Thread safe, and safe against any number of other processes using the same folder.
class DiskCache {
 public:
  /// Creates the folder when missing. One that cannot be created or trusted is not used: one warning, and
  /// `refusal` says why.
  explicit DiskCache(DiskCacheOptions options);

  /// Whether there is a writable layer.
  bool writable() const { return writable_; }
  /// Why there is none; empty when there is, and when none was asked for.
  const std::string& refusal() const { return refusal_; }

  /// The entry of `key` from the first layer that has it whole. Takes no lock and writes nothing, but for the
  /// time of last use (at most every ten minutes). A damaged entry is a miss and one warning; the next
  /// `store` replaces it.
  std::optional<Entry> load(const Key& key) const;
  /// The entry of `key` for a caller who looked before it took the lock, and wants to know whether another
  /// process has stored the entry since: damage was reported then, and gives no second warning.
  std::optional<Entry> load_again(const Key& key) const;

  /// Puts the entry into the writable layer, replacing another, and evicts the least recently used when a cap
  /// is exceeded. The key's text is stored, `entry.key_text` is not read. The first failure of this cache
  /// gives a warning, further ones nothing. An entry without code, or larger than the cap, is not stored.
  void store(const Key& key, const Entry& entry);

  /// Keeps other processes and threads from computing the same entry meanwhile. There are 4,096 locks for all
  /// keys, so now and then a different key waits too; hold one at a time. When it cannot be had in time, go
  /// on without it.
  FileLock lock(const Key& key, std::chrono::milliseconds timeout = std::chrono::seconds(30)) const;

  /// All entries of all layers, by digest. Reads every file; one that goes meanwhile is left out.
  std::vector<EntryInfo> list() const;
  /// The damaged ones among them.
  std::vector<EntryInfo> verify() const;
  /// The entry whose digest begins with these hexadecimal digits (lower or upper case), from the first layer
  /// that has it; nothing when there is none or it is damaged. Throws Error (invalid_argument) when several
  /// digests match.
  std::optional<Entry> load_by_digest(std::string_view hex_prefix) const;

  /// Removes from the writable layer what is damaged (not what cannot be read), then the least recently used
  /// until at most `max_bytes` remain. Returns how many entries went. Throws Error (io_error) when one that had to
  /// go could not be removed, once the others are.
  std::size_t prune(std::uint64_t max_bytes);
  /// Removes all entries of the writable layer, as prune does. Returns how many.
  std::size_t clear();

  /// Writes all whole entries of all layers to one file. Returns how many. Throws Error (io_error).
  std::size_t export_to(const std::string& path) const;
  /// Adds the entries of such a file, each checked. Throws Error (io_error) when the file cannot be read,
  /// there is no writable layer, or an entry cannot be stored.
  ImportReport import_from(const std::string& path);

 private:
  struct Layer {
    std::string path;
    Ownership ownership = Ownership::user;
  };
  // The finding of a layer for a digest: the entry, or why a file that is there cannot be used, or nothing at
  // all.
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
  std::vector<Layer> layers_;  // in the order of search; the writable one, if any, is the first
  bool writable_ = false;
  std::string refusal_;
  mutable std::atomic<bool> warned_ = false;

  // How much may still be stored before the folder must be looked at again; see evict_when_due.
  std::mutex scan_mutex_;
  std::atomic<bool> scan_wanted_ = false;
  std::atomic<std::int64_t> room_bytes_ = 0;
  std::atomic<std::int64_t> room_entries_ = 0;
};

}  // namespace jit
