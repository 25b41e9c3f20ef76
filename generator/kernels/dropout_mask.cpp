#include "generator/kernels/dropout_mask.h"

#include <cstdint>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/launch/ceil_div.h"
#include "runtime/launch.h"

namespace jit {
namespace {

constexpr int lanes = 32;

// Blocks of a head of a batch entry, in whole tiles.
struct Blocks {
  std::int64_t queries, keys;
};
Blocks blocks_of(std::int64_t seqlen_q, std::int64_t seqlen_kv, const DropoutMaskTiles& tiles) {
  const auto blocks = [](std::int64_t rows, int tile, int block) {
    return (rows + tile - 1) / tile * (tile / block);
  };
  return {blocks(seqlen_q, tiles.tile_q, tiles.block.queries),
          blocks(seqlen_kv, tiles.tile_kv, tiles.block.keys)};
}

std::int64_t bytes_of(std::int64_t heads, const Blocks& blocks, const DropoutMaskTiles& tiles) {
  return heads * blocks.queries * blocks.keys * tiles.block.words * lanes *
         static_cast<std::int64_t>(sizeof(unsigned));
}

}  // namespace

std::string dropout_mask_rejection(const AttentionSpec& spec, bool is_wanted) {
  if (!is_wanted) return "";
  if (!spec.dropout) return "dropout_mask_ahead must be false without dropout: there is nothing to draw";
  if (spec.sequences_q == SequenceKind::varlen || spec.sequences_kv == SequenceKind::varlen) {
    return "dropout_mask_ahead must be false where sequences are varlen: the host does not know how many "
           "scores "
           "there are";
  }
  return "";
}

bool has_room_for_dropout_mask(const ProblemShape& shape, const DropoutMaskTiles& tiles) {
  if (shape.any_size) return false;
  const ProblemShape largest = largest_shape(size_class(shape));
  const Blocks of_head = blocks_of(largest.seqlen_q, largest.seqlen_kv, tiles);
  // double: the product over all heads of the longest sequences exceeds 64 bits.
  return static_cast<double>(largest.heads_q) * static_cast<double>(bytes_of(1, of_head, tiles)) <=
         most_dropout_mask_bytes;
}

double drawing_clocks(const ProblemShape& shape, double seen_share, int sm_count) {
  // Measured: 0.40 ms for 2³¹ scores on 132 multiprocessors at 1.75 GHz.
  constexpr double clocks_of_score = 0.40e-3 * 1.75e9 * 132 / (1u << 31), launch_clocks = 4000;
  const double scores = static_cast<double>(shape.batch * shape.heads_q) *
                        static_cast<double>(shape.seqlen_q) * static_cast<double>(shape.seqlen_kv);
  return launch_clocks + scores * seen_share * clocks_of_score / sm_count;
}

std::string dropout_mask_name(const std::string& reader) { return "dropout_mask_for_" + reader; }

std::string dropout_mask_source(std::string_view axes, const std::string& reader) {
  return fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__(drawing_threads)\n"
      "{}(const __grid_constant__ AttentionParams params) {{\n"
      "  dropout_mask::dropout_mask<Config, DropoutMaskLayout<{}, Config::tile_kv>>(params);\n}}\n",
      dropout_mask_name(reader), axes);
}

std::size_t dropout_mask_bytes(const AttentionParams& params, const DropoutMaskTiles& tiles) {
  return static_cast<std::size_t>(bytes_of(std::int64_t{params.batch} * params.heads_q,
                                           blocks_of(params.seqlen_q, params.seqlen_kv, tiles), tiles));
}

AttentionParams launch_dropout_mask(const KernelLaunch& launch, const DropoutMaskTiles& tiles, void* words) {
  const AttentionParams& params = launch.params;
  const Blocks blocks = blocks_of(params.seqlen_q, params.seqlen_kv, tiles);
  AttentionParams reader = launch.params;
  DropoutMaskBits& mask = reader.dropout.mask;
  mask = {.words = static_cast<unsigned*>(words),
          .query_blocks = static_cast<int>(blocks.queries),
          .key_blocks = static_cast<int>(blocks.keys)};
  constexpr int warps = drawing_threads / lanes;
  const std::int64_t grid = std::int64_t{params.batch} * params.heads_q * ceil_div(mask.query_blocks, warps) *
                            ceil_div(mask.key_blocks, key_blocks_of_warp(tiles.block));
  if (grid == 0) return reader;
  void* arguments[] = {&reader};
  jit::launch(
      launch.kernel.ahead.handle(),
      {.grid = {static_cast<unsigned>(grid), 1, 1}, .block = {drawing_threads, 1, 1}, .dependent = true},
      arguments, launch.stream);
  return reader;
}

}  // namespace jit
