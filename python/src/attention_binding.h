// attention(), prepare() and what prepare() returns.
#pragma once

#include <jit/spec.h>
#include <jit/tensor.h>
#include <nanobind/nanobind.h>

namespace jit::python {

/// Query heads for each KV head of q and k with heads as their last dimension but one. Throws Error invalid_argument
/// when that is no whole number.
int gqa_ratio(const TensorView& q, const TensorView& k);

/// Of a spec made of what a call was given: throws Error invalid_argument that names what there is no dropout with. The
/// library's own refusal names a field of the spec, which this caller never wrote.
void check_dropout(const AttentionSpec& spec);

/// Throws Error invalid_argument for random numbers that nothing is drawn with.
void check_has_effect(double dropout_p, const TensorView& rng_state);

/// attention, prepare and the class Attention.
void bind_attention(nanobind::module_& module);

}  // namespace jit::python
