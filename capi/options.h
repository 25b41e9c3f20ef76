// Specs as text: options as on the command line of the tool.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/append.h>
#include <jit/block_mask.h>
#include <jit/c.h>
#include <jit/merge.h>
#include <jit/quantize.h>
#include <jit/spec.h>

namespace jit::c {

/// An option by its name without dashes.
struct Option {
  std::string name;
  bool is_truth = false;                      ///< without a value it means true
  std::function<void(std::string_view)> set;  ///< throws Error where the value cannot be read
};

/// Reads "--name value", "--name=value" and "--name" of truths. Throws Error invalid_argument, whose field is
/// "spec.NAME", or "spec" where there is no such option, for text that cannot be read.
void read_options(std::string_view text, const std::vector<Option>& options);

// Options whose values are parsed into a variable.
Option whole_option(std::string name, int& value);
Option real_option(std::string name, float& value);
Option truth_option(std::string name, bool& value);
Option dtype_option(std::string name, DType& value);

}  // namespace jit::c
