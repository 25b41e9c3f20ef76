#include "generator/operations/score_blocks/arguments.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/launch/ceil_div.h"
#include "generator/launch/sequence_grid.h"
#include "generator/launch/tensor_maps.h"
#include "generator/operations/operands.h"
#include "generator/operations/score_blocks/program.h"
#include "generator/operations/scores.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/tma_operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

ScoreOperands operands_of(const ScoreBlocksArguments& arguments) {
  static constexpr TensorView none = {};
  return {arguments.q, arguments.k, arguments.lse,    arguments.cu_seqlens_q, arguments.cu_seqlens_k,
          none,        none,        arguments.tensors};
}

TensorMap map_of(const AttentionSpec& scores, const TmaOperand& operand, int box_rows) {
  return map_panels({.name = operand.name,
                     .data = operand.data,
                     .strides = operand.strides,
                     .batch = operand.batch,
                     .seqlen = operand.seqlen,
                     .heads = operand.heads,
                     .columns = scores.head_dim,
                     .box_rows = box_rows,
                     .dtype = scores.dtype});
}

}  // namespace

std::int64_t blocks_of(const ScoreBlocksSpec& spec, std::int64_t seqlen_kv) {
  const std::int64_t strides = seqlen_kv == 0 ? 0 : seqlen_kv + spec.key_span - 1;
  return ceil_div(strides, spec.block_size);
}

bool fill_params(const ScoreBlocksSpec& spec, const ScoreBlocksArguments& arguments,
                 ScoreBlocksParams& params) {
  const AttentionSpec scores = scores_of(spec.attention);
  const bool sums_heads = spec.reduction == BlockReduction::probability;
  if (arguments.lse.is_present() != sums_heads)
    refuse("lse", sums_heads ? "is missing; probabilities are relative to it"
                             : "is given; only probabilities are relative to it");
  params = {};
  fill_params_of_scores(scores, operands_of(arguments), params.attention);
  const AttentionParams& attention = params.attention;
  const bool is_varlen = has_varlen_q(scores);
  CallSizes sizes;
  sizes.know("batch", attention.batch);
  sizes.know("seqlen_q", attention.seqlen_q);
  sizes.know("total_q", attention.sequences.total_q);
  const int heads = sums_heads ? attention.heads_kv : attention.heads_q;
  sizes.know(sums_heads ? "heads_kv" : "heads_q", heads);
  if (!has_varlen_kv(scores)) sizes.know("blocks", blocks_of(spec, attention.seqlen_kv));
  const DimNames varlen =
      sums_heads ? DimNames("total_q, heads_kv, blocks") : DimNames("total_q, heads_q, blocks");
  const DimNames dense = sums_heads ? DimNames("batch, seqlen_q, heads_kv, blocks")
                                    : DimNames("batch, seqlen_q, heads_q, blocks");
  sizes.check({"scores", is_varlen ? varlen : dense, DType::fp32}, arguments.scores);
  check_dense_last("scores", arguments.scores);
  check_result("scores", arguments.scores, operands_of(arguments));
  params.scores = static_cast<float*>(arguments.scores.data);
  params.score_strides = row_strides(arguments.scores);
  params.blocks = static_cast<int>(sizes["blocks"]);
  const SequenceGrid grid = query_grid(scores, attention, score_blocks_queries);
  params.query_tiles = grid.tiles;
  const std::int64_t columns = std::int64_t{grid.tiles} * grid.entries * heads;
  const std::int64_t tiles = ceil_div(params.blocks, score_blocks_keys / spec.block_size);
  // Items are fewer than tiles, and blocks count up to one grid past their end.
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - 65536;
  if (columns * tiles > most)
    refuse("q", fmt::format("has {} tiles of scores in all heads; at most {} fit", columns * tiles, most));
  params.columns = static_cast<int>(columns);
  return columns * tiles > 0;
}

void fill_work(const ScoreBlocksSpec& spec, int sm_count, ScoreBlocksParams& params) {
  const AttentionSpec scores = scores_of(spec.attention);
  const auto operands = tma_operands(params.attention);
  params.q = map_of(scores, operands[0], score_blocks_queries);
  // Without keys, the map is not used.
  const bool has_keys = operands[1].seqlen > 0 && operands[1].batch > 0;
  params.k = has_keys ? map_of(scores, operands[1], score_blocks_keys) : params.q;
  constexpr int least_chunk = 4, most_chunk = 64, items_of_block = 8;
  const int tiles = ceil_div(params.blocks, score_blocks_keys / spec.block_size);
  const std::int64_t even = std::int64_t{tiles} * params.columns / (std::int64_t{items_of_block} * sm_count);
  params.chunk_tiles = static_cast<int>(std::clamp<std::int64_t>(even, least_chunk, most_chunk));
  params.items = params.columns * ceil_div(tiles, params.chunk_tiles);
}

}  // namespace jit
