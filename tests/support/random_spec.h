// Random problems for tests that sweep.
#pragma once

#include <jit/spec.h>

#include <jit/kernel_config.h>

#include "generator/kernels/families.h"
#include "tests/support/host_functors.h"

namespace jit::reference {

/// A valid spec: half of them at the head dims that people use, half anywhere.
AttentionSpec random_spec(Random& random);

/// Makes one of four specs one of parts of sequences, unless its mask serves none.
void make_part(AttentionSpec& spec, Random& random);

/// Makes `spec` one of elements of 8 bits: of k and v alone, or of q, too, with all that these may have.
void make_fp8(AttentionSpec& spec, Random& random);

/// Makes `spec` one of varlen queries, and varlen or paged keys, or of some of these. What draft_tree reads of varlen
/// queries has no meaning on the host: then they stay dense.
void make_sequences(AttentionSpec& spec, Random& random);

/// A legal config for `spec`, of all axes that there are; the default one where none is legal.
KernelConfig random_config(const AttentionSpec& spec, const DeviceLimits& limits, Random& random);

/// A config of kernels that split keys over blocks; only these read sinks, pages, and keys in use of dense
/// sequences.
KernelConfig random_split_config(const AttentionSpec& spec, const DeviceLimits& limits, Random& random);

/// A config of kernels that read an FP8 cache for many queries, whose keys and values are upcast on their way
/// or ahead.
KernelConfig random_cache_config(const AttentionSpec& spec, const DeviceLimits& limits, Random& random);

/// Legal configs of the kernels of gradients for `spec`, of one pass or of two, of all axes that there are; the default
/// ones of two passes where none is legal.
PlanConfigs random_backward_configs(const AttentionSpec& spec, const DeviceLimits& limits, Random& random);

}  // namespace jit::reference
