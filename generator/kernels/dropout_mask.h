// Dropout masks precomputed by a kernel that runs before the attention kernel, which reads them as bits
// (templates/dropout_mask). Both kernels belong to one program, so they are always available together.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/problem/problem_shape.h"
#include "templates/base/dropout_params.cuh"

namespace jit {

/// The most bytes of a call's mask, and of that of the largest call of its size class.
inline constexpr double most_dropout_mask_bytes = 512.0 * 1024 * 1024;

/// Tile sizes of the kernel that reads the mask, and its layout.
struct DropoutMaskTiles {
  int tile_q, tile_kv;
  DropoutMaskBlock block;
};

/// Why a spec does not support the mask that `is_wanted`; empty if it does, or it is not wanted.
std::string dropout_mask_rejection(const AttentionSpec& spec, bool is_wanted);

/// Whether the mask stays within the limit in all calls that run the config chosen for `shape`.
bool has_room_for_dropout_mask(const ProblemShape& shape, const DropoutMaskTiles& tiles);

/// Predicted clocks of the drawing kernel on `sm_count` SMs. It skips scores beyond `seen_share`.
double drawing_clocks(const ProblemShape& shape, double seen_share, int sm_count);

/// The name and source of the drawing kernel, to be appended to the program `reader`, whose Config it uses.
/// Requires `dropout_mask_include`; `axes` are the axes of the reader's products
/// (templates/steps/product_axes.cuh).
std::string dropout_mask_name(const std::string& reader);
inline constexpr const char* dropout_mask_include = "#include \"dropout_mask/kernel.cuh\"\n";
std::string dropout_mask_source(std::string_view axes, const std::string& reader);

/// Workspace bytes for the mask.
std::size_t dropout_mask_bytes(const AttentionParams& params, const DropoutMaskTiles& tiles);

/// Launches the drawing kernel. Returns the reader's parameters, with the mask at `words`.
AttentionParams launch_dropout_mask(const KernelLaunch& launch, const DropoutMaskTiles& tiles, void* words);

}  // namespace jit
