// Specs as text, in the options of the command-line tool.
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
  bool is_truth = false;                      ///< may omit its value, which is then true
  std::function<void(std::string_view)> set;  ///< throws Error for an invalid value
};

/// Reads "--name value", "--name=value" and, for booleans, "--name". Throws Error invalid_argument for
/// invalid text; its field is "spec.NAME", or "spec" for an unknown option.
void read_options(std::string_view text, const std::vector<Option>& options);

// Options whose values are parsed into a variable.
Option whole_option(std::string name, int& value);
Option real_option(std::string name, float& value);
Option truth_option(std::string name, bool& value);
Option dtype_option(std::string name, DType& value);

}  // namespace jit::c
