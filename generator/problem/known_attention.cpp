#include "generator/problem/known_attention.h"

#include <cstddef>

#include "generator/problem/arguments.h"

namespace jit {

KnownAttention::KnownAttention(const ArgumentRules& rules, const AttentionArguments& arguments,
                               const AttentionParams& params)
    : tensors_(arguments, [](const ArgumentRow& row) { return row.is_output; }),
      params_(params),
      num_splits_(arguments.num_splits),
      zero_padding_(arguments.zero_padding),
      dropout_p_(arguments.dropout_p) {
  for (const ArgumentRule& rule : rules) {
    const TensorView& tensor = arguments.*rule.row->view;
    strides_[static_cast<std::size_t>(&rule - rules.begin())] =
        tensor.is_present() ? strides_of(rule.dims, tensor) : TensorStrides{};
  }
}

bool KnownAttention::fill(const AttentionSpec& spec, const AttentionArguments& arguments,
                          AttentionParams& params) const {
  if (!is_possible(arguments) || arguments.num_splits != num_splits_ ||
      arguments.zero_padding != zero_padding_ || arguments.dropout_p != dropout_p_ ||
      !tensors_.vouch_for(arguments))
    return false;
  params = params_;
  for (std::size_t i = 0; i < argument_table.size(); ++i) {
    const TensorView& tensor = arguments.*argument_table[i].view;
    if (tensor.is_present()) argument_table[i].set(params, tensor.data, strides_[i]);
  }
  if (spec.values_in_keys) {
    params.v = params.k;
    params.k_strides = params_.k_strides;  // for latents, as in their format
  }
  return true;
}

}  // namespace jit
