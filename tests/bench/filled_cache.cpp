#include "tests/bench/filled_cache.h"

#include <map>

#include "cache/disk_cache.h"
#include "cache/eviction.h"
#include "cache/file_system.h"
#include "tests/bench/real_entry.h"

namespace jit::bench {
namespace {

// Filling is not what is measured, and most of its time would be waiting for the disk.
class UnflushedFileSystem : public FileSystem {
 public:
  int fsync(int) override { return 0; }
};

}  // namespace

Key numbered_key(std::size_t number) {
  std::vector<KeyField> fields = real_entry().fields;
  fields.push_back({"number", std::to_string(number)});
  return Key(fields);
}

const FilledCache& FilledCache::of(std::size_t entries) {
  static std::map<std::size_t, FilledCache> caches;
  return caches.try_emplace(entries, entries).first->second;
}

FilledCache::FilledCache(std::size_t entries) {
  for (std::size_t i = 0; i < entries; ++i) keys_.push_back(numbered_key(i));
  fill();
}

void FilledCache::fill() const {
  UnflushedFileSystem file_system;
  DiskCache disk({.directory = path(), .file_system = &file_system});
  for (const Key& key : keys_) {
    if (!disk.load(key)) disk.store(key, real_entry().entry);
  }
}

std::string entry_path(const std::string& folder, const std::string& digest_hex) {
  return folder + "/" + entry_folder(digest_hex) + "/" + entry_name(digest_hex);
}

}  // namespace jit::bench
