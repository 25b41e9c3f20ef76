// 8-bit keys and values that a kernel upcasts to 16 bits before the attention kernel runs
// (templates/upcast_keys). Both kernels belong to one program, so they are always available together.
#pragma once

#include <cstddef>
#include <string>

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/problem/problem_shape.h"
#include "generator/program/functor_source.h"

namespace jit {

/// The most bytes of a call's upcast keys and values, and of those of the largest call of its size class.
inline constexpr double most_upcast_bytes = 512.0 * 1024 * 1024;

/// The spec of the attention kernel: keys and values of q's type, contiguous instead of paged, with lengths
/// on the device. Upcasting applies scales of tokens and blocks, but not of heads.
AttentionSpec upcast_spec(AttentionSpec spec);

/// Whether upcast keys and values stay within the limit in all calls that run the config chosen for `shape`.
bool has_room_for_upcast(const AttentionSpec& spec, const ProblemShape& shape);

/// Number of elements of keys and values of a call.
double key_elements(const AttentionSpec& spec, const ProblemShape& shape);

/// The name and source of the upcasting kernel, to be appended to the program `reader`. Requires
/// `upcast_keys_include`; `functors` are the program's.
std::string upcast_keys_name(const std::string& reader);
inline constexpr const char* upcast_keys_include = "#include \"upcast_keys/kernel.cuh\"\n";
std::string upcast_keys_source(const AttentionSpec& spec, const FunctorSource& functors,
                               const std::string& reader);

/// Workspace bytes.
std::size_t upcast_bytes(const AttentionSpec& spec, const AttentionParams& params);

/// Launches the upcasting kernel if there are keys. Returns the reader's parameters, with keys and values in
/// the workspace.
AttentionParams launch_upcast_keys(const KernelLaunch& launch);

}  // namespace jit
