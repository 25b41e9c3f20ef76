// A checked attention call, which lets calls with the same shapes skip checks.
#pragma once

#include <array>

#include <jit/attention.h>

#include "generator/problem/argument_table.h"
#include "generator/problem/known_call.h"
#include "templates/base/params.cuh"

namespace jit {

class KnownAttention {
 public:
  /// Whether calls with such arguments can be known: not with functors' tensors.
  static bool is_possible(const AttentionArguments& arguments) {
    return arguments.tensors.begin() == arguments.tensors.end();
  }

  /// Requires: is_possible, and fill_params has returned true for these arguments and `params`.
  KnownAttention(const ArgumentRules& rules, const AttentionArguments& arguments,
                 const AttentionParams& params);

  /// Fills `params` if the known call's checks also hold for these arguments; else returns false.
  bool fill(const AttentionSpec& spec, const AttentionArguments& arguments, AttentionParams& params) const;

 private:
  KnownTensors<AttentionArguments, argument_table> tensors_;
  std::array<TensorStrides, argument_table.size()> strides_;
  AttentionParams params_;
  int num_splits_;
  bool zero_padding_;
  float dropout_p_;
};

}  // namespace jit
