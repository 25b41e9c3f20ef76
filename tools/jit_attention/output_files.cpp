#include "output_files.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/error.h>

#include "command.h"

namespace jit::tool {
namespace {

OutputFile open_output(const std::string& option, const std::string& path) {
  try {
    return OutputFile(path);
  } catch (const Error& error) {
    throw Error(error.code(), error.stage(), option, fmt::format("{}: {}", option, error.message()));
  }
}

}  // namespace

void OutputFiles::add(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  OutputFile file = open_output(option, path);
  for (const Named& other : outputs_) {
    const bool replaced = file.replaces() || other.file.replaces();
    if (replaced && is_same_file(path, other.file.path())) {
      throw BadInput(fmt::format("{} {} and {} {} are the same file; choose another output", other.option,
                                 other.file.path(), option, path));
    }
  }
  outputs_.push_back({option, std::move(file)});
}

const OutputFile* OutputFiles::find(std::string_view option) const {
  const auto found = std::find_if(outputs_.begin(), outputs_.end(),
                                  [option](const Named& output) { return output.option == option; });
  return found == outputs_.end() ? nullptr : &found->file;
}

std::vector<std::string> OutputFiles::paths() const {
  std::vector<std::string> paths;
  for (const Named& output : outputs_) paths.push_back(output.file.path());
  return paths;
}

void refuse_overwriting(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
  for (const std::string& output : outputs) {
    for (const std::string& input : inputs) {
      if (is_same_file(output, input))
        throw BadInput(fmt::format("{} would be written over {}; choose another output", output, input));
    }
  }
}

}  // namespace jit::tool
