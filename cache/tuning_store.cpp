#include "cache/tuning_store.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>

#include "cache/atomic_file.h"
#include "cache/cache_directory.h"

namespace jit {
namespace {

constexpr const char* records_root = "tuning/v1";
constexpr const char* record_extension = ".txt";
constexpr std::uint64_t max_record_bytes = std::uint64_t{16} << 20;

struct Content {
  std::string environment;
  std::string operation;
  std::string record;
};

// A record file has four fields in the format of keys; the last one is the digest of the previous ones.
std::string format(const Content& content) {
  std::string text = canonical_text(std::vector<KeyField>{
      {"environment", content.environment}, {"operation", content.operation}, {"record", content.record}});
  return text + canonical_text(std::vector<KeyField>{{"xxh3-128", digest(text).hex()}});
}

std::optional<Content> parse(std::string_view text) {
  std::optional<std::vector<KeyField>> fields = parse_canonical_text(text);
  if (!fields || fields->size() != 4) return std::nullopt;
  Content content{(*fields)[0].value, (*fields)[1].value, (*fields)[2].value};
  if (format(content) != text) return std::nullopt;
  return content;
}

std::string environment_folder(const std::string& environment_hex) {
  return std::string(records_root) + "/" + environment_hex;
}

std::optional<Content> parse(std::span<const std::byte> bytes) {
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

TrustedFile read_record(FileSystem& file_system, int directory, const std::string& path) {
  return read_trusted_file(file_system, directory, path, Ownership::user, max_record_bytes);
}

// Paths of all record files below the open folder `directory`, sorted.
std::vector<std::string> record_paths(FileSystem& file_system, int directory) {
  std::vector<std::string> paths;
  std::vector<std::string> folders;
  file_system.read_directory(directory, records_root, folders);
  for (const std::string& folder : folders) {
    std::vector<std::string> names;
    file_system.read_directory(directory, environment_folder(folder).c_str(), names);
    for (const std::string& name : names) {
      if (!is_temporary(name) && name.ends_with(record_extension)) {
        paths.push_back(environment_folder(folder) + "/" + name);
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TuningStore::TuningStore(std::string directory, FileSystem* file_system, Observer observer)
    : directory_(std::move(directory)),
      file_system_(file_system == nullptr ? real_file_system() : *file_system),
      observer_(std::move(observer)) {
  if (directory_.empty()) return;
  refusal_ = distrusted_location(directory_);
  if (refusal_.empty()) refusal_ = open_or_create_directory(file_system_, directory_).refusal;
  writable_ = refusal_.empty();
  if (!writable_) warn_once("tuning results are not kept on disk: " + refusal_);
}

void TuningStore::warn(const std::string& message) const {
  if (observer_) observer_({.kind = Event::Kind::warning, .message = message});
}

void TuningStore::warn_once(const std::string& message) const {
  if (!warned_.exchange(true)) warn(message);
}

std::optional<std::string> TuningStore::load(const Key& environment, const Key& operation) const {
  if (!writable_) return std::nullopt;
  const OpenedDirectory directory = open_trusted_directory(file_system_, directory_, Ownership::user);
  if (!directory.refusal.empty()) return std::nullopt;
  const std::string path =
      environment_folder(environment.digest().hex()) + "/" + operation.digest().hex() + record_extension;
  const TrustedFile file = read_record(file_system_, directory.file.get(), path);
  if (file.absent) return std::nullopt;
  if (!file.failure.empty()) {
    warn_once("a tuning result cannot be read: " + file.failure);
    return std::nullopt;
  }
  std::optional<Content> content = parse(file.bytes);
  if (!content) {
    warn(fmt::format("tuning record {}/{} is damaged and not used", directory_, path));
    return std::nullopt;
  }
  if (content->environment != environment.text() || content->operation != operation.text())
    return std::nullopt;
  return std::move(content->record);
}

void TuningStore::store(const Key& environment, const Key& operation, std::string_view record) {
  if (!writable_) return;
  const std::string failure = try_store(environment.text(), operation.text(), record);
  if (!failure.empty()) warn_once("a tuning result could not be kept on disk: " + failure);
}

// Why the record was not stored; empty if it was.
std::string TuningStore::try_store(const std::string& environment, const std::string& operation,
                                   std::string_view record) {
  const std::string text = format({environment, operation, std::string(record)});
  if (text.size() > max_record_bytes) return "the record is too large";
  const OpenedDirectory directory = open_or_create_directory(file_system_, directory_);
  if (!directory.refusal.empty()) return directory.refusal;
  const std::string folder = environment_folder(digest(environment).hex());
  const FileFailure failure =
      publish_file(file_system_, directory.file.get(), folder, digest(operation).hex() + record_extension,
                   std::as_bytes(std::span(text)));
  if (failure) return failure.message();
  remove_abandoned(file_system_, directory.file.get(), folder);
  return {};
}

std::vector<TuningRecord> TuningStore::list() const {
  if (!writable_) return {};
  const OpenedDirectory directory = open_trusted_directory(file_system_, directory_, Ownership::user);
  if (!directory.refusal.empty()) return {};
  std::vector<TuningRecord> records;
  for (const std::string& path : record_paths(file_system_, directory.file.get())) {
    std::optional<Content> content = parse(read_record(file_system_, directory.file.get(), path).bytes);
    if (!content) continue;
    records.push_back({std::move(content->environment), std::move(content->operation),
                       std::move(content->record), directory_ + "/" + path});
  }
  return records;
}

std::string TuningStore::export_records() const {
  std::vector<KeyField> files;
  for (const TuningRecord& record : list()) {
    files.push_back({"file", format({record.environment, record.operation, record.record})});
  }
  return canonical_text(files);
}

ImportReport TuningStore::import_records(std::string_view text) {
  const auto fail = [](const std::string& why) {
    throw Error(ErrorCode::io_error, "cache", "directory", "tuning records cannot be imported: " + why);
  };
  if (!writable_) fail(refusal_.empty() ? "there is no writable cache folder" : refusal_);
  ImportReport report;
  const std::optional<std::vector<KeyField>> files = parse_canonical_text(text);
  if (!files) return {0, {"the text is not a list of records"}};
  for (std::size_t index = 0; index < files->size(); ++index) {
    const std::optional<Content> content = parse((*files)[index].value);
    if (!content) {
      report.damaged.push_back(fmt::format("record {} is damaged", index));
      continue;
    }
    const std::string failure = try_store(content->environment, content->operation, content->record);
    if (!failure.empty()) fail(failure);
    ++report.imported;
  }
  return report;
}

std::size_t TuningStore::clear() {
  if (!writable_) return 0;
  const OpenedDirectory directory = open_trusted_directory(file_system_, directory_, Ownership::user);
  if (!directory.refusal.empty()) return 0;
  std::size_t removed = 0;
  FileFailure failure;
  for (const std::string& path : record_paths(file_system_, directory.file.get())) {
    if (file_system_.unlinkat(directory.file.get(), path.c_str(), 0) == 0) {
      ++removed;
    } else if (errno != ENOENT && !failure) {
      failure = {"unlink", errno};
    }
  }
  if (failure)
    throw Error(ErrorCode::io_error, "cache", "directory",
                fmt::format("{}: some tuning records cannot be removed: {}; {} others were removed",
                            directory_, failure.message(), removed));
  return removed;
}

}  // namespace jit
