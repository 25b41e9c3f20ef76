// Writes the program of a kernel: a short translation unit over the templates. Pure and deterministic: equal
// specs and configs give equal text on every machine.
#pragma once

#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/program/functor_source.h"
#include "generator/program/program.h"

namespace jit {

/// A spec in a kernel's name: "bf16_d128_gqa4_causal".
std::string problem_name(const AttentionSpec& spec);

/// Members of a generated Config that follow from the spec, equal in all its kernels.
std::string spec_lines(const AttentionSpec& spec, const FunctorSource& functors);
/// A line that defines another number.
std::string number_line(std::string_view name, int value, std::string_view doc);
/// A static_assert that host and device agree on the layout of AttentionParams.
std::string params_assertion();

/// A static_assert for GradientParams, in programs that use them.
std::string gradient_params_assertion();

/// The reference kernel that checks the tuner's candidates: one warp per query, key by key, in fp32, with the
/// same mask and score; slow, without tiles, tensor cores or config.
Program emit_reference(const AttentionSpec& spec);

/// The reference kernel of gradients: one warp per query, and per key.
Program emit_gradient_reference(const AttentionSpec& spec);

/// A kernel (parameters, fault) that checks that the mask's functions are consistent.
Program emit_mask_check(const AttentionSpec& spec);

/// A kernel (parameters, fault) that checks position tables.
Program emit_position_check(const AttentionSpec& spec);

/// A kernel (parameters, fault) that checks the ends of subtrees, by a block for each batch entry.
Program emit_tree_check(const AttentionSpec& spec);

/// A kernel (words, number of words, seed) that fills a tensor with random numbers of the type.
Program emit_random_fill(DType dtype);

}  // namespace jit
