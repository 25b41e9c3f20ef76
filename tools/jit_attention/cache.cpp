// jit-attention cache: the kernels and tuning records kept on disk.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <jit/error.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "generator/context_state.h"
#include "progress.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool as_json = false;
  std::string prefix;
  std::string file;
  std::uint64_t max_bytes = 0;
};

// A command's view of the cache; warnings of the cache go to standard error.
struct OpenCache {
  ProgressLine progress;
  Context context{settings_from_environment(), progress.observer()};

  DiskCache& disk() { return context.state()->disk; }
  TuningStore& tuning() { return context.state()->tuning; }
  void require_folder() {
    if (disk().writable()) return;
    throw Error(ErrorCode::io_error, "cache", "cache",
                fmt::format("there is no cache folder to change: {}", context.cache_reason()));
  }
};

std::string utc(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// JSON where the text is that, else the text itself.
Json parse_or_text(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(text) : json;
}

Json describe_fields(const std::string& canonical) {
  Json json = Json::object();
  for (const KeyField& field : parse_canonical_text(canonical).value_or(std::vector<KeyField>{})) {
    json[field.name] = field.value;
  }
  return json;
}

Json describe_entry(const EntryInfo& entry) {
  return {{"key", entry.digest},
          {"bytes", entry.bytes},
          {"last_used", utc(entry.last_used)},
          {"damaged", entry.damaged},
          {"layer", entry.layer},
          {"path", entry.path},
          {"kernel", parse_or_text(entry.metadata)}};
}

// A text of the kernel's metadata; empty when there is none, whatever the metadata is.
std::string fact(const Json& kernel, const char* name) {
  const bool known = kernel.is_object() && kernel.contains(name) && kernel[name].is_string();
  return known ? kernel[name].get<std::string>() : "";
}

std::string kernel_line(const Json& entry) {
  if (entry["damaged"].get<bool>()) return "damaged";
  // The kernels that the tuner checks with have no spec.
  const std::string spec = fact(entry["kernel"], "spec");
  return fmt::format("{}  {}", fact(entry["kernel"], "arch"),
                     spec.empty() ? fact(entry["kernel"], "kernel") : spec);
}

int run_list(const Options& options) {
  OpenCache cache;
  Json report = {{"directory", cache.context.cache_directory()},
                 {"reason", cache.context.cache_reason()},
                 {"bytes", 0},
                 {"kernels", Json::array()},
                 {"tuning", Json::array()}};
  std::uint64_t bytes = 0;
  for (const EntryInfo& entry : cache.disk().list()) {
    report["kernels"].push_back(describe_entry(entry));
    bytes += entry.bytes;
  }
  report["bytes"] = bytes;
  for (const TuningRecord& record : cache.tuning().list()) {
    report["tuning"].push_back({{"operation", describe_fields(record.operation)},
                                {"environment", describe_fields(record.environment)},
                                {"record", parse_or_text(record.record)},
                                {"path", record.path}});
  }
  if (options.as_json) {
    print_json(report);
    return status_ok;
  }
  const std::string folder = report["directory"].get<std::string>();
  fmt::print("{} ({})\n", folder.empty() ? "in memory only" : folder, cache.context.cache_reason());
  for (const Json& entry : report["kernels"]) {
    fmt::print("{}  {:>8}  {}  {}\n", entry["key"].get<std::string>(), entry["bytes"].get<std::uint64_t>(),
               entry["last_used"].get<std::string>(), kernel_line(entry));
  }
  fmt::print("{} kernels, {} bytes, {} tuning records\n", report["kernels"].size(), bytes,
             report["tuning"].size());
  return status_ok;
}

int run_show(const Options& options) {
  OpenCache cache;
  const bool hexadecimal = std::all_of(options.prefix.begin(), options.prefix.end(),
                                       [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (options.prefix.empty() || !hexadecimal) {
    throw BadInput(
        fmt::format("'{}' is not the beginning of a key: hexadecimal digits, as `cache list` shows them",
                    options.prefix));
  }
  const std::optional<Entry> entry = cache.disk().load_by_digest(options.prefix);
  if (!entry) throw BadInput(fmt::format("no undamaged kernel with key {}… is in the cache", options.prefix));
  const Json report = {{"key", digest(entry->key_text).hex()},
                       {"cubin_bytes", entry->code.size()},
                       {"kernel", parse_or_text(entry->metadata)},
                       {"inputs", describe_fields(entry->key_text)}};
  if (options.as_json) {
    print_json(report);
    return status_ok;
  }
  fmt::print("key: {}\ncubin_bytes: {}\n", report["key"].get<std::string>(), entry->code.size());
  for (const char* part : {"kernel", "inputs"}) {
    if (!report[part].is_object()) continue;
    for (const auto& [name, value] : report[part].items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      const bool long_text = text.find('\n') != std::string::npos;
      fmt::print("{}:{}{}\n", name, long_text ? "\n" : " ", text);
    }
  }
  return status_ok;
}

int run_verify(const Options& options) {
  OpenCache cache;
  const std::size_t total = cache.disk().list().size();
  const std::vector<EntryInfo> damaged = cache.disk().verify();
  if (options.as_json) {
    Json report = {{"kernels", total}, {"damaged", Json::array()}};
    for (const EntryInfo& entry : damaged) report["damaged"].push_back(entry.path);
    print_json(report);
  } else {
    for (const EntryInfo& entry : damaged) fmt::print("damaged: {}\n", entry.path);
    fmt::print("{} kernels, {} damaged\n", total, damaged.size());
  }
  return damaged.empty() ? status_ok : status_failure;
}

int report_count(const Options& options, const char* name, std::size_t count) {
  if (options.as_json) {
    print_json({{name, count}});
  } else {
    fmt::print("{} {} kernels\n", name, count);
  }
  return status_ok;
}

int run_prune(const Options& options) {
  OpenCache cache;
  cache.require_folder();
  return report_count(options, "removed", cache.disk().prune(options.max_bytes));
}

int run_clear(const Options& options) {
  OpenCache cache;
  cache.require_folder();
  const std::size_t kernels = cache.disk().clear();
  const std::size_t records = cache.tuning().clear();
  if (options.as_json) {
    print_json({{"removed", kernels}, {"removed_tuning", records}});
  } else {
    fmt::print("removed {} kernels, {} tuning records\n", kernels, records);
  }
  return status_ok;
}

int run_export(const Options& options) {
  OpenCache cache;
  return report_count(options, "exported", cache.disk().export_to(options.file));
}

int run_import(const Options& options) {
  OpenCache cache;
  cache.require_folder();
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.file, error)) {
    throw BadInput(fmt::format("{} is no file", options.file));
  }
  const ImportReport report = cache.disk().import_from(options.file);
  if (report.imported == 0 && !report.damaged.empty()) {
    throw BadInput(fmt::format("{} holds no kernel that `cache export` has written", options.file));
  }
  for (const std::string& sentence : report.damaged) fmt::print(stderr, "jit-attention: {}\n", sentence);
  report_count(options, "imported", report.imported);
  return report.damaged.empty() ? status_ok : status_failure;
}

}  // namespace

void add_cache(CLI::App& app, Commands& commands) {
  CLI::App* cache = app.add_subcommand("cache", "The kernels and tuning records kept on disk");
  cache->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, const char* doc, int (*run)(const Options&)) {
    CLI::App* command = cache->add_subcommand(name, doc);
    command->add_flag("--json", options->as_json, "Print JSON");
    commands.push_back({command, [options, run] { return run(*options); }});
    return command;
  };
  add("list", "Every kernel, and how many tuning records", run_list);
  add("show", "All that is known of one kernel, with its source", run_show)
      ->add_option("key", options->prefix, "First digits of its key")
      ->required();
  add("verify", "Read every kernel; exit status 1 when one is damaged", run_verify);
  add("prune", "Remove damaged kernels, then the least recently used", run_prune)
      ->add_option("--max-bytes", options->max_bytes, "What may stay")
      ->check(CLI::NonNegativeNumber)
      ->required();
  add("clear", "Remove every kernel and tuning record", run_clear);
  add("export", "Write all kernels to one file, for another machine", run_export)
      ->add_option("file", options->file, "File to write")
      ->required();
  add("import", "Add the kernels of such a file", run_import)
      ->add_option("file", options->file, "File to read")
      ->required();
}

}  // namespace jit::tool
