// The scores that dropout keeps, drawn by a kernel of its own ahead of the one that reads bits of them
// (templates/draw_dropout). Both are of one program: whoever has one has the other.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/problem/problem_shape.h"
#include "templates/base/drawn_block.cuh"

namespace jit {

/// So many bytes may the bits of a call take, and those of the largest call of its size class.
inline constexpr double most_drawn_bytes = 512.0 * 1024 * 1024;

/// The tiles of the kernel that reads bits, and the blocks in which these lie.
struct DrawnTiles {
  int tile_q, tile_kv;
  DrawnBlock block;
};

/// Why nothing can be drawn ahead for a spec, where that `is_wanted`; empty: it can.
std::string draw_ahead_rejection(const AttentionSpec& spec, bool is_wanted);

/// Whether bits stay within the bound in all calls that run what is chosen for `shape`.
bool has_room_for_drawn(const ProblemShape& shape, const DrawnTiles& tiles);

/// Clocks that a cost model expects of the kernel that draws all scores of such a call, of which queries see a share, on so
/// many multiprocessors.
double drawing_clocks(const ProblemShape& shape, double seen_share, int sm_count);

/// The name of the kernel that draws, and its source, to stand behind that of the program `reader`, whose Config it shares.
/// It includes `draw_dropout_include`, and `axes` are those of the reader's products (templates/steps/product_axes.cuh).
std::string draw_dropout_name(const std::string& reader);
inline constexpr const char* draw_dropout_include = "#include \"draw_dropout/kernel.cuh\"\n";
std::string draw_dropout_source(std::string_view axes, const std::string& reader);

/// Bytes of workspace.
std::size_t drawn_bytes(const AttentionParams& params, const DrawnTiles& tiles);

/// Puts the kernel that draws on the stream. Returns the parameters of the one that reads what it leaves at `words`.
DropoutParams launch_draw_dropout(const KernelLaunch& launch, const DrawnTiles& tiles, void* words);

}  // namespace jit
