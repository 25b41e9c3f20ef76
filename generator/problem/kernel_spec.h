// Specs of kernels that differ from the caller's.
//
// Gradients, dropout and spans of dense tensors need other kernels if arrays on the device give the number of
// used rows. Only the spec of a kernel says so, never the caller's.
#pragma once

#include <jit/spec.h>

namespace jit {

/// The spec of kernels that read lengths: `spec` itself, unless all its sequences are dense.
AttentionSpec with_lengths(AttentionSpec spec);

/// The spec of a call's forward kernels. Without dropout, split_keys and values_in_keys, split-KV kernels
/// serve calls with lengths, which they read for any spec.
AttentionSpec forward_spec(const AttentionSpec& spec, bool has_device_lengths);

/// The spec of gradient kernels, which do not depend on sinks (LSE includes them), the order of forward's
/// sums, or outputs besides o and LSE.
AttentionSpec gradient_spec(AttentionSpec spec);

/// The caller's spec, without compiled-in lengths.
AttentionSpec as_given(AttentionSpec spec);

}  // namespace jit
