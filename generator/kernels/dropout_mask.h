// The scores that dropout keeps, drawn by a kernel of its own ahead of the one that reads bits of them
// (templates/dropout_mask). Both belong to one program, so either is always there with the other.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/problem/problem_shape.h"
#include "templates/base/dropout_params.cuh"

namespace jit {

/// So many bytes may the bits of a call take, and those of the largest call of its size class.
inline constexpr double most_dropout_mask_bytes = 512.0 * 1024 * 1024;

/// The tiles of the kernel that reads bits, and the blocks in which these lie.
struct DropoutMaskTiles {
  int tile_q, tile_kv;
  DropoutMaskBlock block;
};

/// Why no dropout mask can be precomputed for a spec, where that `is_wanted`; empty: it can.
std::string dropout_mask_rejection(const AttentionSpec& spec, bool is_wanted);

/// Whether bits stay within the bound in all calls that run what is chosen for `shape`.
bool has_room_for_dropout_mask(const ProblemShape& shape, const DropoutMaskTiles& tiles);

/// Clocks that a cost model expects of the kernel that draws all scores of such a call, of which queries see a share, on so
/// many multiprocessors.
double drawing_clocks(const ProblemShape& shape, double seen_share, int sm_count);

/// The name of the kernel that draws, and its source, to stand behind that of the program `reader`, whose Config it shares.
/// It includes `dropout_mask_include`, and `axes` are those of the reader's products
/// (templates/steps/product_axes.cuh).
std::string dropout_mask_name(const std::string& reader);
inline constexpr const char* dropout_mask_include = "#include \"dropout_mask/kernel.cuh\"\n";
std::string dropout_mask_source(std::string_view axes, const std::string& reader);

/// Bytes of workspace.
std::size_t dropout_mask_bytes(const AttentionParams& params, const DropoutMaskTiles& tiles);

/// Puts the kernel that draws on the stream. Returns the parameters of the one that reads what it leaves at `words`.
AttentionParams launch_dropout_mask(const KernelLaunch& launch, const DropoutMaskTiles& tiles, void* words);

}  // namespace jit
