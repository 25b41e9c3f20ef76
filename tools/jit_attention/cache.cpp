// jit-attention cache: kernels and tuning records on disk.
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <jit/cache.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "number_options.h"
#include "progress.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct CacheOptions {
  bool as_json = false;
  std::string prefix;
  std::string file;
  std::uint64_t max_bytes = 0;
};

// The current user's cache; its warnings go to standard error.
struct OpenCache {
  ProgressLine progress;
  Context context{settings_from_environment(), progress.observer()};
  Cache cache{context};
};

// "1 kernel", "2 kernels".
std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string utc(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Parsed JSON, or the text itself when it is not JSON.
Json parse_or_text(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(text) : json;
}

Json describe_fields(const std::vector<CacheField>& fields) {
  Json json = Json::object();
  for (const CacheField& field : fields) json[field.name] = field.value;
  return json;
}

Json describe_kernel(const CachedKernel& kernel) {
  return {{"key", kernel.key},
          {"bytes", kernel.bytes},
          {"last_used", utc(kernel.last_used)},
          {"damaged", kernel.damaged},
          {"unreadable", kernel.unreadable},
          {"layer", kernel.layer},
          {"path", kernel.path},
          {"kernel", parse_or_text(kernel.facts)}};
}

// A text member of the kernel's facts; empty when it does not exist.
std::string fact(const Json& kernel, const char* name) {
  const bool known = kernel.is_object() && kernel.contains(name) && kernel[name].is_string();
  return known ? kernel[name].get<std::string>() : "";
}

std::string kernel_line(const Json& entry) {
  if (entry["damaged"].get<bool>()) return "damaged";
  if (const auto why = entry["unreadable"].get<std::string>(); !why.empty()) return "unreadable: " + why;
  // A kernel that fills memory has no spec.
  const std::string spec = fact(entry["kernel"], "spec");
  return fmt::format("{}  {}", fact(entry["kernel"], "arch"),
                     spec.empty() ? fact(entry["kernel"], "kernel") : spec);
}

int run_list(const CacheOptions& options) {
  const OpenCache open;
  Json report = {{"directory", open.context.cache_directory()},
                 {"reason", open.context.cache_reason()},
                 {"bytes", 0},
                 {"kernels", Json::array()},
                 {"tuning", Json::array()}};
  std::uint64_t bytes = 0;
  for (const CachedKernel& kernel : open.cache.kernels()) {
    report["kernels"].push_back(describe_kernel(kernel));
    bytes += kernel.bytes;
  }
  report["bytes"] = bytes;
  for (const CachedTuning& tuning : open.cache.tunings()) {
    report["tuning"].push_back({{"operation", describe_fields(tuning.operation)},
                                {"environment", describe_fields(tuning.environment)},
                                {"record", parse_or_text(tuning.record)},
                                {"path", tuning.path}});
  }
  if (options.as_json) {
    print_json(report);
    return status_ok;
  }
  const std::string folder = report["directory"].get<std::string>();
  print("{} ({})\n", folder.empty() ? "in memory only" : folder, open.context.cache_reason());
  for (const Json& entry : report["kernels"]) {
    print("{}  {:>8}  {}  {}\n", entry["key"].get<std::string>(), entry["bytes"].get<std::uint64_t>(),
          entry["last_used"].get<std::string>(), kernel_line(entry));
  }
  print("{}, {} bytes, {}\n", counted(report["kernels"].size(), "kernel"), bytes,
        counted(report["tuning"].size(), "tuning record"));
  return status_ok;
}

int run_show(const CacheOptions& options) {
  const OpenCache open;
  const std::optional<CachedCode> code = open.cache.find(options.prefix);
  if (!code) throw BadInput(fmt::format("no undamaged kernel with key {}… is in the cache", options.prefix));
  const Json report = {{"key", code->key},
                       {"code_bytes", code->code_bytes},
                       {"kernel", parse_or_text(code->facts)},
                       {"inputs", describe_fields(code->inputs)}};
  if (options.as_json) {
    print_json(report);
    return status_ok;
  }
  print("key: {}\ncode_bytes: {}\n", code->key, code->code_bytes);
  for (const char* part : {"kernel", "inputs"}) {
    if (!report[part].is_object()) continue;
    for (const auto& [name, value] : report[part].items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      const bool long_text = text.find('\n') != std::string::npos;
      print("{}:{}{}\n", name, long_text ? "\n" : " ", text);
    }
  }
  return status_ok;
}

int run_verify(const CacheOptions& options) {
  const OpenCache open;
  const std::vector<CachedKernel> kernels = open.cache.kernels();
  Json damaged = Json::array(), unreadable = Json::array();
  for (const CachedKernel& kernel : kernels) {
    if (kernel.damaged) damaged.push_back(kernel.path);
    if (!kernel.unreadable.empty()) unreadable.push_back({{"path", kernel.path}, {"why", kernel.unreadable}});
  }
  if (options.as_json) {
    print_json({{"kernels", kernels.size()}, {"damaged", damaged}, {"unreadable", unreadable}});
  } else {
    for (const Json& path : damaged) print("damaged: {}\n", path.get<std::string>());
    for (const Json& entry : unreadable) {
      print("unreadable: {} ({})\n", entry["path"].get<std::string>(), entry["why"].get<std::string>());
    }
    print("{}, {} damaged, {} unreadable\n", counted(kernels.size(), "kernel"), damaged.size(),
          unreadable.size());
  }
  return damaged.empty() && unreadable.empty() ? status_ok : status_failure;
}

int report_count(const CacheOptions& options, const char* name, std::size_t count) {
  if (options.as_json) {
    print_json({{name, count}});
  } else {
    print("{} {}\n", name, counted(count, "kernel"));
  }
  return status_ok;
}

int run_prune(const CacheOptions& options) {
  return report_count(options, "removed", OpenCache().cache.prune(options.max_bytes));
}

int run_clear(const CacheOptions& options) {
  const Cache::Cleared cleared = OpenCache().cache.clear();
  if (options.as_json) {
    print_json({{"removed", cleared.kernels}, {"removed_tuning", cleared.tunings}});
  } else {
    print("removed {}, {}\n", counted(cleared.kernels, "kernel"), counted(cleared.tunings, "tuning record"));
  }
  return status_ok;
}

int run_export(const CacheOptions& options) {
  return report_count(options, "exported", OpenCache().cache.export_to(options.file));
}

int run_import(const CacheOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.file, error)) {
    throw BadInput(fmt::format("{} is no file", options.file));
  }
  const CacheImport report = OpenCache().cache.import_from(options.file);
  if (report.kernels == 0 && !report.damaged.empty()) {
    throw BadInput(fmt::format("{} holds no kernel that `cache export` has written", options.file));
  }
  for (const std::string& sentence : report.damaged) {
    print_to_stderr(fmt::format("jit-attention: {}\n", sentence));
  }
  report_count(options, "imported", report.kernels);
  return report.damaged.empty() ? status_ok : status_failure;
}

}  // namespace

void add_cache(CLI::App& app, Commands& commands) {
  CLI::App* cache = app.add_subcommand("cache", "The kernels and tuning records kept on disk");
  cache->require_subcommand(1);
  const auto options = std::make_shared<CacheOptions>();
  const auto add = [&](const char* name, const char* doc, int (*run)(const CacheOptions&)) {
    CLI::App* command = cache->add_subcommand(name, doc);
    command->add_flag("--json", options->as_json, "Print JSON");
    commands.push_back({command, [options, run] { return run(*options); }});
    return command;
  };
  add("list", "Every kernel, and how many tuning records", run_list);
  add("show", "Details of one kernel, with its source", run_show)
      ->add_option("key", options->prefix, "First digits of its key")
      ->required();
  add("verify", "Read every kernel; exit status 1 when one is damaged or cannot be read", run_verify);
  add_whole_option(*add("prune", "Remove damaged kernels, then the least recently used", run_prune),
                   "--max-bytes", options->max_bytes, "Bytes that the cache may keep")
      ->required();
  add("clear", "Remove every kernel and tuning record", run_clear);
  add("export", "Write all kernels to one file, for another machine", run_export)
      ->add_option("file", options->file, "File to write; a device or pipe is written into")
      ->check(must_not_be_empty)
      ->required();
  add("import", "Add the kernels of such a file", run_import)
      ->add_option("file", options->file, "File to read")
      ->required();
}

}  // namespace jit::tool
