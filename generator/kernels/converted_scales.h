// Scales of tokens and of blocks of columns that converters of a kernel multiply numbers by, where these become 16-bit
// ones (templates/mainloop/scaled_upcast.cuh): what the rest of the kernel reads has scales of heads at most.
#pragma once

#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/problem/arguments.h"

namespace jit {

/// Whether k and v of a spec have such scales, under 16-bit q.
bool has_converted_scales(const AttentionSpec& spec);

/// Why converters of the family `name` cannot read the rows of such a spec; empty: they can.
std::string converted_scales_rejection(const AttentionSpec& spec, std::string_view name);

/// Bytes of the scales of a row of so many columns, as templates/base/element.cuh has them; 0 for other specs.
int converted_scale_bytes(const AttentionSpec& spec, int columns);

/// The spec whose Config the kernel has: without scales of tokens. And a member of that Config, which says so.
AttentionSpec converted_spec(AttentionSpec spec);
std::string converted_scales_line(const AttentionSpec& spec);

/// Parameters of the kernel: scales of tokens stand where those of blocks do, as bytes.
AttentionParams converter_params(const AttentionSpec& spec, AttentionParams params);

}  // namespace jit
