// Specs all of whose forward kernels compute the same bits of o and LSE, whatever family, config and layout a call has
// (docs/batch-invariance.md).
#pragma once

#include <string>
#include <string_view>

#include <jit/arch.h>
#include <jit/spec.h>

namespace jit {

/// Raised when bits of such kernels change; tests/golden/fixed_bits.txt has what they are.
inline constexpr int bits_version = 1;

/// Whether it is such a spec.
bool has_fixed_bits(const AttentionSpec& spec);
/// Why it is none, if it has split_keys, as a sentence without subject that names a field; empty: it is one.
std::string unfixed_bits(const AttentionSpec& spec);

/// Keys of the tiles between which maxima may move, in all of these kernels of an architecture: as many as divide a span,
/// and fit into registers and, twice, into shared memory.
int fixed_bits_tile(const AttentionSpec& spec, Arch arch);

/// Why a family whose keys are split cannot sum keys in spans of spec.split_keys; empty: it can.
std::string span_rejection(const AttentionSpec& spec, Arch arch, int tile_kv);
/// Why one whose blocks have all keys of a row cannot; empty: it can.
std::string lone_block_rejection(const AttentionSpec& spec, Arch arch, int tile_kv, std::string_view family);

}  // namespace jit
