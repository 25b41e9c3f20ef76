// Output files of a command, checked before it computes anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/output_file.h>

namespace jit::tool {

/// Outputs by their options.
class OutputFiles {
 public:
  /// Ignores an empty `path`: the option was not given. Throws BadInput when a previous output is the same
  /// file, Error io_error when it cannot be written; both name the option.
  void add(const std::string& option, const std::string& path);

  /// The file of an option; null when it was not given.
  const OutputFile* find(std::string_view option) const;

  /// The paths as given.
  std::vector<std::string> paths() const;

 private:
  struct Named {
    std::string option;
    OutputFile file;
  };
  std::vector<Named> outputs_;
};

/// Throws BadInput when one of `outputs` is the same file as one of `inputs`, even under another path.
void refuse_overwriting(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);

}  // namespace jit::tool
