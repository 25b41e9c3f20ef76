#include "generator/program/closure.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit {
namespace {

// Names in the lines `#include "…"` of a text. Ignores preprocessor conditions: all possible includes count.
std::vector<std::string_view> included_names(std::string_view text) {
  constexpr std::string_view blank = " \t", directive = "include";
  std::vector<std::string_view> names;
  for (std::size_t hash = text.find('#'); hash != std::string_view::npos; hash = text.find('#', hash + 1)) {
    const std::size_t before = hash == 0 ? std::string_view::npos : text.find_last_not_of(blank, hash - 1);
    if (before != std::string_view::npos && text[before] != '\n') continue;
    const std::size_t word = text.find_first_not_of(blank, hash + 1);
    if (word == std::string_view::npos || !text.substr(word).starts_with(directive)) continue;
    const std::size_t open = text.find_first_not_of(blank, word + directive.size());
    if (open == std::string_view::npos || text[open] != '"') continue;
    const std::size_t close = text.find('"', open + 1);
    if (close != std::string_view::npos) names.push_back(text.substr(open + 1, close - open - 1));
  }
  return names;
}

/// Traverses includes, each file once.
class Walk {
 public:
  explicit Walk(const Templates& templates) : templates_(templates) {}

  /// Marks a file as visited without adding it to the result.
  void skip(std::string_view name) { reached_.emplace(name, nullptr); }

  void take(std::string_view name, std::string_view includer) {
    const auto [position, is_new] = reached_.emplace(name, nullptr);
    if (!is_new) return;
    const auto file = std::find_if(templates_.files.begin(), templates_.files.end(),
                                   [&](const SourceFile& candidate) { return candidate.name == name; });
    if (file == templates_.files.end()) throw missing(name, includer);
    position->second = &*file;
    take_includes_of(file->text, file->name);
  }

  void take_includes_of(std::string_view text, std::string_view includer) {
    for (const std::string_view name : included_names(text)) take(name, includer);
  }

  std::vector<SourceFile> files() const {
    std::vector<SourceFile> files;
    for (const auto& [name, file] : reached_) {
      if (file != nullptr) files.push_back(*file);
    }
    return files;
  }

 private:
  Error missing(std::string_view name, std::string_view includer) const {
    const std::string where = templates_.folder.empty()
                                  ? std::string("the library has no template")
                                  : fmt::format("the templates folder {} lacks", templates_.folder);
    return {ErrorCode::io_error, "emit", "templates",
            fmt::format("{} {}, which {} includes; start from a copy of the project's templates/", where,
                        name, includer)};
  }

  const Templates& templates_;
  std::map<std::string_view, const SourceFile*> reached_;  // by name; null for files that are no templates
};

}  // namespace

std::vector<SourceFile> closure(const Program& program, const Templates& templates) {
  Walk walk(templates);
  for (const SourceFile& header : program.headers) walk.skip(header.name);
  walk.take_includes_of(program.source, "the program " + program.name);
  for (const SourceFile& header : program.headers) walk.take_includes_of(header.text, header.name);
  return walk.files();
}

std::vector<SourceFile> closure(const std::vector<std::string>& entries, const Templates& templates) {
  Walk walk(templates);
  for (const std::string& entry : entries) walk.take(entry, "every kernel of its kind");
  return walk.files();
}

Digest digest_of(const std::vector<SourceFile>& files) {
  Digester digester;
  for (const SourceFile& file : files) digester.add(file.name).add(file.text);
  return digester.finish();
}

Digest ClosureDigests::of(const Program& program) const {
  std::vector<std::string> key;
  const auto add_includes = [&](std::string_view text) {
    for (const std::string_view name : included_names(text)) key.emplace_back(name);
  };
  add_includes(program.source);
  for (const SourceFile& header : program.headers) {
    key.push_back("header " + header.name);
    add_includes(header.text);
  }
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_.emplace(std::move(key), digest_of(closure(program, templates_))).first->second;
}

Digest ClosureDigests::of(const std::vector<std::string>& entries) const {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(entries);
  if (known != known_.end()) return known->second;
  return known_.emplace(entries, digest_of(closure(entries, templates_))).first->second;
}

}  // namespace jit
