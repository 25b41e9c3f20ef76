#include <jit/cache.h>

#include <algorithm>
#include <cctype>
#include <exception>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"

namespace jit {
namespace {

std::vector<CacheField> fields_of(const std::string& canonical) {
  std::vector<CacheField> fields;
  for (KeyField& field : parse_canonical_text(canonical).value_or(std::vector<KeyField>{}))
    fields.push_back({std::move(field.name), std::move(field.value)});
  return fields;
}

std::vector<CachedKernel> as_kernels(std::vector<EntryInfo> entries) {
  std::vector<CachedKernel> kernels;
  for (EntryInfo& entry : entries) {
    kernels.push_back({.key = std::move(entry.digest),
                       .bytes = entry.bytes,
                       .last_used = entry.last_used,
                       .facts = std::move(entry.metadata),
                       .layer = std::move(entry.layer),
                       .path = std::move(entry.path),
                       .damaged = entry.damaged,
                       .unreadable = std::move(entry.unreadable)});
  }
  return kernels;
}

ContextState& writable(const Context& context) {
  ContextState& state = *Access::state(context);
  if (state.disk.writable()) return state;
  throw Error(ErrorCode::io_error, "cache", "directory",
              fmt::format("there is no cache folder to change: {}", context.cache_reason()));
}

}  // namespace

std::vector<CachedKernel> Cache::kernels() const { return as_kernels(Access::state(context_)->disk.list()); }

std::vector<CachedKernel> Cache::damaged_kernels() const {
  return as_kernels(Access::state(context_)->disk.verify());
}

std::vector<CachedTuning> Cache::tunings() const {
  std::vector<CachedTuning> tunings;
  for (TuningRecord& record : Access::state(context_)->tuning.list()) {
    tunings.push_back({.environment = fields_of(record.environment),
                       .operation = fields_of(record.operation),
                       .record = std::move(record.record),
                       .path = std::move(record.path)});
  }
  return tunings;
}

std::optional<CachedCode> Cache::find(std::string_view key_prefix) const {
  const bool hexadecimal = std::all_of(key_prefix.begin(), key_prefix.end(),
                                       [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (key_prefix.empty() || !hexadecimal) {
    throw Error(ErrorCode::invalid_argument, "cache", "key",
                fmt::format("'{}' is not the beginning of a key; give hexadecimal digits", key_prefix));
  }
  std::optional<Entry> entry = Access::state(context_)->disk.load_by_digest(key_prefix);
  if (!entry) return {};
  return CachedCode{.key = digest(entry->key_text).hex(),
                    .facts = std::move(entry->metadata),
                    .inputs = fields_of(entry->key_text),
                    .code_bytes = entry->code.size()};
}

std::size_t Cache::prune(std::uint64_t max_bytes) const { return writable(context_).disk.prune(max_bytes); }

Cache::Cleared Cache::clear() const {
  ContextState& state = writable(context_);
  // Clears tunings even if some kernels cannot be removed.
  Cleared cleared;
  std::exception_ptr failure;
  try {
    cleared.kernels = state.disk.clear();
  } catch (const Error&) {
    failure = std::current_exception();
  }
  try {
    cleared.tunings = state.tuning.clear();
  } catch (const Error&) {
    if (!failure) throw;
  }
  if (failure) std::rethrow_exception(failure);
  return cleared;
}

std::size_t Cache::export_to(const std::string& path) const {
  return Access::state(context_)->disk.export_to(path);
}

CacheImport Cache::import_from(const std::string& path) const {
  ImportReport report = writable(context_).disk.import_from(path);
  return {.kernels = report.imported, .damaged = std::move(report.damaged)};
}

}  // namespace jit
