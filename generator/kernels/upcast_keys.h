// Keys and values of 8 bits that a kernel of its own makes numbers of 16 of, ahead of the kernel that reads them
// (templates/upcast_keys). Both belong to one program, so either is always there with the other.
#pragma once

#include <cstddef>
#include <string>

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/problem/problem_shape.h"
#include "generator/program/functor_source.h"

namespace jit {

/// So many bytes may upcast keys and values of a call take, and those of the largest call of its size class.
inline constexpr double most_upcast_bytes = 512.0 * 1024 * 1024;

/// The spec of kernels that read what was upcast: keys and values of q's type, those of pages side by side, with
/// lengths that the device knows. Scales of tokens and of blocks are applied, those of heads are not.
AttentionSpec upcast_spec(AttentionSpec spec);

/// Whether upcast keys and values stay within the bound in all calls that run what is chosen for `shape`.
bool has_room_for_upcast(const AttentionSpec& spec, const ProblemShape& shape);

/// Elements of keys and values of such a call.
double key_elements(const AttentionSpec& spec, const ProblemShape& shape);

/// The name of the kernel that upcasts, and its source, to stand behind that of the program `reader`. It includes
/// `upcast_keys_include`, and `functors` are the program's.
std::string upcast_keys_name(const std::string& reader);
inline constexpr const char* upcast_keys_include = "#include \"upcast_keys/kernel.cuh\"\n";
std::string upcast_keys_source(const AttentionSpec& spec, const FunctorSource& functors,
                               const std::string& reader);

/// Bytes of workspace.
std::size_t upcast_bytes(const AttentionSpec& spec, const AttentionParams& params);

/// Puts the kernel that upcasts on the stream, where there are keys. Returns the parameters of the one that reads
/// what it leaves in the workspace.
AttentionParams launch_upcast_keys(const KernelLaunch& launch);

}  // namespace jit
