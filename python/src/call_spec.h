// The spec that a call's arrays make, and errors about it by the names of the call.
#pragma once

#include <optional>

#include <jit/error.h>
#include <jit/spec.h>
#include <jit/tensor.h>
#include <nanobind/nanobind.h>

#include "call.h"

namespace jit::python {

/// The spec of the arrays themselves. Throws Error invalid_argument, or a Python TypeError, that names the argument.
AttentionSpec spec_of_arrays(const Call& call, nb::handle mask, nb::handle score, nb::handle output,
                             nb::handle softmax_scale, int split_keys, nb::handle descale_per,
                             std::optional<DType> out_dtype, std::optional<int> head_dim_v,
                             bool interpolated_exponentials);

/// `error` about a field of that spec, by what the caller gave.
Error by_arguments(const Error& error, const CallInputs& inputs, bool has_descale_per, bool has_head_dim_v);

/// Query heads for each KV head of q and k with heads as their last dimension but one. Throws Error invalid_argument
/// when that is no whole number.
int gqa_ratio(const TensorView& q, const TensorView& k);

/// Makes `spec` one of keys in pages of `k`. Throws Error invalid_argument where they are varlen, too, or have no row.
void set_pages(AttentionSpec& spec, const TensorView& k, bool is_varlen);

/// Throws Error invalid_argument that names what there is no dropout with, for a spec made of a call's arguments. The
/// library's own refusal names a field of the spec, which this caller never wrote.
void check_dropout(const AttentionSpec& spec);

/// Throws Error invalid_argument for random numbers that nothing is drawn with.
void check_has_effect(double dropout_p, const TensorView& rng_state);

}  // namespace jit::python
