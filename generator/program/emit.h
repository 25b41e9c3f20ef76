// Writes the program of a kernel: a short translation unit over the templates. Pure and deterministic: equal
// specs and configs give equal text, on every machine, at every time.
#pragma once

#include <string_view>
#include <vector>

#include <jit/arch.h>
#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/program/program.h"

namespace jit {

/// The forward kernel. Requires: `validate(spec)` passes and the config is legal for the spec
/// (config_space.h).
Program emit_forward(const AttentionSpec& spec, const KernelConfig& config);

/// The templates that forward kernels for `arch` begin with: of all kinds that compete there; without `tma`,
/// of those that read any tensor.
std::vector<std::string_view> forward_entries(Arch arch, bool tma);

/// The reference kernel: one warp per query, every key in turn, fp32 throughout, the same mask and score.
/// Slow, and without tiles, tensor cores or any config: what candidates of the tuner are checked against.
Program emit_reference(const AttentionSpec& spec);

/// A kernel (pairs, number of pairs, seed) that fills a tensor with random numbers of the type.
Program emit_random_fill(DType dtype);

}  // namespace jit
