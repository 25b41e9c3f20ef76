// The files that a command writes: found and tried before it computes anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/output_file.h>

namespace jit::tool {

/// Outputs by the options that name them.
class OutputFiles {
 public:
  /// Nothing when `path` is empty: the option was not given. Throws BadInput when one of the outputs so far is
  /// the same file, Error io_error when it cannot be written; both name the option.
  void add(const std::string& option, const std::string& path);

  /// The file of that option; null when it was not given.
  const OutputFile* find(std::string_view option) const;

  /// As they were given.
  std::vector<std::string> paths() const;

 private:
  struct Named {
    std::string option;
    OutputFile file;
  };
  std::vector<Named> outputs_;
};

/// Throws BadInput when one of `outputs` is one of `inputs`, whatever the paths look like.
void refuse_overwriting(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);

}  // namespace jit::tool
