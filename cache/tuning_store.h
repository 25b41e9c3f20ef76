// Tuning records on disk: one small checksummed text file per environment and operation. The store does not
// interpret records. A problem is a miss and at most one event.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/observer.h>

#include "cache/file_system.h"
#include "cache/import_report.h"
#include "cache/key.h"

namespace jit {

/// One record as a listing shows it.
struct TuningRecord {
  std::string environment;  ///< Key::text() of the environment: machine, versions, policy
  std::string operation;  ///< Key::text() of the operation: every parameter that selects code, or size class
  std::string record;     ///< the caller's text
  std::string path;       ///< absolute path of the file

  bool operator==(const TuningRecord&) const = default;
};

/// Thread safe, and safe against other processes using the same folder; the last valid write wins and nobody
/// waits.
class TuningStore {
 public:
  /// Keeps records under `directory`/tuning (absolute; created when missing). If it is empty, or not trusted
  /// (one warning), nothing is stored or found. `file_system` is not owned; null: the real one.
  explicit TuningStore(std::string directory, FileSystem* file_system = nullptr, Observer observer = {});

  bool writable() const { return writable_; }
  const std::string& refusal() const { return refusal_; }

  /// The record stored under exactly these keys, if any. A damaged one is a miss and one warning.
  std::optional<std::string> load(const Key& environment, const Key& operation) const;

  /// Stores the record, replacing an older one. Only the first failure gives a warning.
  void store(const Key& environment, const Key& operation, std::string_view record);

  /// All whole records, by path.
  std::vector<TuningRecord> list() const;

  /// All whole records as one text, for another machine of the same kind.
  std::string export_records() const;
  /// Adds the records of an exported text, each checked. Throws Error (io_error) if nothing can be stored.
  ImportReport import_records(std::string_view text);

  /// Removes all records. Returns their number.
  std::size_t clear();

 private:
  void warn(const std::string& message) const;
  void warn_once(const std::string& message) const;
  std::string try_store(const std::string& environment, const std::string& operation,
                        std::string_view record);

  std::string directory_;
  FileSystem& file_system_;
  Observer observer_;
  bool writable_ = false;
  std::string refusal_;
  mutable std::atomic<bool> warned_ = false;
};

}  // namespace jit
