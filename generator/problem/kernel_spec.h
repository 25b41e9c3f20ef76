// The specs of kernels where they are other ones than callers'.
//
// Gradients, dropout and spans of dense tensors of which arrays on the device say how many rows are in use: their kernels are
// other ones than those of whole tensors, and the spec of a kernel says so, though no caller's does.
#pragma once

#include <jit/spec.h>

namespace jit {

/// The spec of kernels that read lengths: `spec` itself, unless all its sequences are dense.
AttentionSpec with_lengths(AttentionSpec spec);

/// The spec of forward kernels of a call. Without dropout and split_keys, and with a row of v for each key, kernels whose
/// keys are split serve calls with lengths: they read them whatever the spec says.
AttentionSpec forward_spec(const AttentionSpec& spec, bool has_device_lengths);

/// The spec of kernels of gradients: none knows of sinks, because LSE has them, of the order of
/// forward's sums, nor of outputs beside o and LSE.
AttentionSpec gradient_spec(AttentionSpec spec);

/// The spec as the caller gave it, but for baked lengths.
AttentionSpec as_given(AttentionSpec spec);

}  // namespace jit
