#include "generator/program/templates.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/program/embedded_text.h"
#include "generator/program/inflate.h"

namespace jit {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw Error(ErrorCode::io_error, "emit", "templates",
                fmt::format("cannot read the template {}", path.string()));
  }
  return text.str();
}

// Removes the mutation tests' anchors, as embedding does, so that equal kernels have equal sources. Keeps
// line numbers.
std::string without_anchors(std::string text) {
  constexpr std::string_view mark = "// mutate: ";
  std::size_t begin = 0;
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, begin)) {
    begin = at;
    while (begin > 0 && text[begin - 1] == ' ') --begin;
    text.erase(begin, std::min(text.find('\n', at), text.size()) - begin);
  }
  return text;
}

std::vector<SourceFile> read_embedded() {
  const EmbeddedText embedded = embedded_text();
  std::size_t size = 0;
  for (const EmbeddedFile& file : embedded.files) size += file.size;
  const auto text = inflate(embedded.stream, size);
  if (!text) throw Error(ErrorCode::io_error, "emit", "templates", "the embedded templates are damaged");
  std::vector<SourceFile> files;
  std::size_t at = 0;
  for (const EmbeddedFile& file : embedded.files) {
    files.push_back({std::string(file.name), text->substr(at, file.size)});
    at += file.size;
  }
  return files;
}

}  // namespace

const std::vector<SourceFile>& embedded_templates() {
  static const std::vector<SourceFile> files = read_embedded();
  return files;
}

Templates load_templates(const std::string& folder) {
  if (folder.empty()) return {"", embedded_templates()};
  std::vector<SourceFile> files;
  try {
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
      if (!item.is_regular_file() || item.path().extension() != ".cuh") continue;
      files.push_back({std::filesystem::relative(item.path(), folder).generic_string(),
                       without_anchors(read_file(item.path()))});
    }
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ErrorCode::io_error, "emit", "templates",
                fmt::format("cannot read the templates folder {}: {}", folder, error.code().message()));
  }
  // Headers with which the library itself was compiled.
  for (const SourceFile& file : embedded_templates()) {
    if (file.name.ends_with(".h")) files.push_back(file);
  }
  return {folder, std::move(files)};
}

}  // namespace jit
