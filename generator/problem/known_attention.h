// A call of attention that passed its checks, for others of tensors of the same shapes.
#pragma once

#include <array>

#include <jit/attention.h>

#include "generator/problem/argument_table.h"
#include "generator/problem/known_call.h"
#include "templates/base/params.cuh"

namespace jit {

class KnownAttention {
 public:
  /// Whether calls with such arguments can be known: none with tensors of functors.
  static bool is_possible(const AttentionArguments& arguments) {
    return arguments.tensors.begin() == arguments.tensors.end();
  }

  /// Requires: is_possible, and `params` are those of the arguments, which have something to compute.
  KnownAttention(const ArgumentRules& rules, const AttentionArguments& arguments,
                 const AttentionParams& params);

  /// Fills `params` where these checks passed for arguments like these; else false.
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
