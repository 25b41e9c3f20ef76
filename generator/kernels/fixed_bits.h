// Specs with fixed bits: all their forward kernels compute bitwise identical o and LSE, for any family,
// config and layout of a call (docs/batch-invariance.md).
#pragma once

#include <string>
#include <string_view>

#include <jit/arch.h>
#include <jit/spec.h>

namespace jit {

/// Incremented when these bits change; tests/golden/fixed_bits.txt records them.
inline constexpr int bits_version = 1;

/// Whether a spec has fixed bits.
bool has_fixed_bits(const AttentionSpec& spec);
/// Why a spec with split_keys has no fixed bits, as a phrase that names a field; empty if it has.
std::string unfixed_bits(const AttentionSpec& spec);

/// Tile size of keys of all these kernels of an architecture, after each of which the maximum may change: it
/// divides a span, and fits into registers and twice into shared memory.
int fixed_bits_tile(const AttentionSpec& spec, Arch arch);

/// Why a split-KV family cannot sum keys in spans of spec.split_keys; empty if it can.
std::string span_rejection(const AttentionSpec& spec, Arch arch, int tile_kv);
/// Why a family without split-KV cannot do so; empty if it can.
std::string lone_block_rejection(const AttentionSpec& spec, Arch arch, int tile_kv, std::string_view family);

}  // namespace jit
