#include "generator/program/templates.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <jit/error.h>

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

}  // namespace

std::vector<SourceFile> load_templates(const std::string& folder) {
  if (folder.empty()) return embedded_templates();
  std::vector<SourceFile> files;
  try {
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
      if (!item.is_regular_file() || item.path().extension() != ".cuh") continue;
      files.push_back(
          {std::filesystem::relative(item.path(), folder).generic_string(), read_file(item.path())});
    }
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ErrorCode::io_error, "emit", "templates",
                fmt::format("cannot read the templates folder {}: {}", folder, error.code().message()));
  }
  // What the library itself was compiled with.
  for (const SourceFile& file : embedded_templates()) {
    if (file.name.ends_with(".h")) files.push_back(file);
  }
  // Order of the folder is the file system's; keys want one order.
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  for (const SourceFile& needed : embedded_templates()) {
    const bool there = std::any_of(files.begin(), files.end(),
                                   [&](const SourceFile& file) { return file.name == needed.name; });
    if (!there) {
      throw Error(
          ErrorCode::io_error, "emit", "templates",
          fmt::format("the templates folder {} lacks {}; start from a copy of the project's templates/",
                      folder, needed.name));
    }
  }
  return files;
}

}  // namespace jit
