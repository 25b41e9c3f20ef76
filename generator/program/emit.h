// Writes the program of a kernel: a short translation unit over the templates. Pure and deterministic: equal
// specs and configs give equal text, on every machine, at every time.
#pragma once

#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/program/functor_source.h"
#include "generator/program/program.h"

namespace jit {

/// A problem as part of a kernel's name: "bf16_d128_gqa4_causal".
std::string problem_name(const AttentionSpec& spec);

/// Members of a generated Config: what the spec fixes, in every kernel of that spec.
std::string spec_lines(const AttentionSpec& spec, const FunctorSource& functors);
/// A further number.
std::string number_line(std::string_view name, int value, std::string_view doc);
/// An assertion that host and device agree on the layout of AttentionParams.
std::string params_assertion();

/// The assertion on GradientParams, for programs that have them.
std::string gradient_params_assertion();

/// The reference kernel: one warp per query, every key in turn, fp32 throughout, the same mask and score.
/// Slow, and without tiles, tensor cores or any config: what candidates of the tuner are checked against.
Program emit_reference(const AttentionSpec& spec);

/// The reference kernel of gradients: one warp per query, and per key.
Program emit_gradient_reference(const AttentionSpec& spec);

/// A kernel (parameters, fault) that looks whether the mask's functions agree with one another.
Program emit_mask_check(const AttentionSpec& spec);

/// A kernel (parameters, fault) that looks at tables of positions.
Program emit_position_check(const AttentionSpec& spec);

/// A kernel (words, number of words, seed) that fills a tensor with random numbers of the type.
Program emit_random_fill(DType dtype);

}  // namespace jit
