// The spec of a call's arrays, and errors about it with the call's argument names.
#pragma once

#include <optional>

#include <jit/error.h>
#include <jit/spec.h>
#include <jit/tensor.h>
#include <nanobind/nanobind.h>

#include "call.h"

namespace jit::python {

/// The spec that the arrays define. Throws Error invalid_argument, or a Python TypeError, that names the
/// argument.
AttentionSpec spec_of_arrays(const Call& call, nb::handle mask, nb::handle score, nb::handle output,
                             nb::handle softmax_scale, int split_keys, nb::handle descale_per,
                             std::optional<DType> out_dtype, std::optional<int> head_dim_v,
                             bool interpolated_exponentials);

/// `error` about a field of that spec, naming the caller's argument.
Error by_arguments(const Error& error, const CallInputs& inputs, bool has_descale_per, bool has_head_dim_v);

/// Query heads for each KV head of q and k with heads as their last dimension but one. Throws Error
/// invalid_argument unless it is an integer.
int gqa_ratio(const TensorView& q, const TensorView& k);

/// Makes `spec` one of keys in pages of `k`. Throws Error invalid_argument where they are varlen, too, or have no row.
void set_pages(AttentionSpec& spec, const TensorView& k, bool is_varlen);

/// Throws Error invalid_argument for arguments that exclude dropout. The library's own error would name a
/// spec's field, which this caller did not write.
void check_dropout(const AttentionSpec& spec);

/// Throws Error invalid_argument for random numbers without dropout.
void check_has_effect(double dropout_p, const TensorView& rng_state);

}  // namespace jit::python
