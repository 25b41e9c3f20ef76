#include "generator/operations/score_keys/arguments.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "generator/launch/ceil_div.h"
#include "generator/launch/tensor_maps.h"
#include "generator/operations/operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

constexpr int row_alignment = 16;  // required by TMA

const int* array_of(std::string_view name, const TensorView& tensor, CallSizes& sizes) {
  if (!tensor.is_present()) return nullptr;
  sizes.check({name, "tokens", DType::int32}, tensor);
  check_dense_numbers(name, tensor);
  return static_cast<const int*>(tensor.data);
}

void fill_keys(const ScoreKeysSpec& spec, const ScoreKeysArguments& arguments, CallSizes& sizes,
               ScoreKeysParams& params) {
  const bool is_paged = spec.page_size > 0;
  const TensorView &k = arguments.k, &scale = arguments.k_scale, &table = arguments.page_table;
  sizes.know("page_size", spec.page_size);
  sizes.check({"k", is_paged ? DimNames("pages, page_size, head_dim") : DimNames("keys, head_dim"),
               spec.dtype, row_alignment},
              k);
  if (spec.k_scale) {
    sizes.check({"k_scale", is_paged ? DimNames("pages, page_size") : DimNames("keys"), DType::fp32}, scale);
    params.k_scale = static_cast<const float*>(scale.data);
    params.scale_page = is_paged ? stride_along(scale, 0) : 0;
    params.scale_key = stride_along(scale, is_paged ? 1 : 0);
  } else if (scale.is_present()) {
    refuse("k_scale", "needs spec.k_scale, which is false");
  }
  params.pages = 1;
  if (is_paged) {
    sizes.check({"page_table", "entries, table_pages", DType::int32}, table);
    check_dense_last("page_table", table);
    params.page_table = static_cast<const int*>(table.data);
    params.table_stride = stride_along(table, 0);
    params.table_pages = static_cast<int>(sizes["table_pages"]);
    params.pages = static_cast<int>(sizes["pages"]);
  } else if (table.is_present()) {
    refuse("page_table", "needs spec.page_size, which is 0");
  }
}

}  // namespace

bool fill_params(const ScoreKeysSpec& spec, const ScoreKeysArguments& arguments, ScoreKeysParams& params) {
  const auto& [q, k, k_scale, weights, starts, ends, page_table, block_scores, scores] = arguments;
  const bool is_paged = spec.page_size > 0;
  params = {};
  CallSizes sizes;
  sizes.know("heads", spec.heads);
  sizes.know("head_dim", spec.head_dim);
  sizes.check({"q", "tokens, heads, head_dim", spec.dtype, row_alignment}, q);
  fill_keys(spec, arguments, sizes, params);
  sizes.check({"weights", "tokens, heads", DType::fp32}, weights);
  params.starts = array_of("starts", starts, sizes);
  params.ends = array_of("ends", ends, sizes);
  sizes.check({"scores", is_paged ? DimNames("tokens, columns") : DimNames("tokens, keys"), DType::fp32},
              scores);
  check_dense_last("scores", scores);
  const auto check_output = [&](std::string_view output, const TensorView& view) {
    check_no_self_overlap(output, view);
    for (const auto& [name, input] : {std::pair{"q", &q},
                                      {"k", &k},
                                      {"k_scale", &k_scale},
                                      {"weights", &weights},
                                      {"starts", &starts},
                                      {"ends", &ends},
                                      {"page_table", &page_table}})
      if (input->is_present()) check_no_overlap(output, view, name, *input);
  };
  check_output("scores", scores);
  if (spec.block_max) {
    sizes.know("blocks", ceil_div(static_cast<int>(scores.shape[1]), score_keys_block));
    sizes.check({"block_scores", "tokens, blocks", DType::fp32}, block_scores);
    check_dense_last("block_scores", block_scores);
    check_output("block_scores", block_scores);
    check_no_overlap("block_scores", block_scores, "scores", scores);
    params.block_scores = static_cast<float*>(block_scores.data);
    params.block_score_token = stride_along(block_scores, 0);
  } else if (block_scores.is_present()) {
    refuse("block_scores", "needs spec.block_max, which is false");
  }
  const std::int64_t tokens = sizes["tokens"], entries = is_paged ? sizes["entries"] : 1;
  if (tokens > 0 && (entries == 0 || tokens % entries != 0))
    refuse("page_table",
           fmt::format("has {} entries for {} tokens; tokens must be a multiple of them, and each has as "
                       "many",
                       entries, tokens));
  params.weights = static_cast<const float*>(weights.data);
  params.weight_token = stride_along(weights, 0);
  params.weight_head = stride_along(weights, 1);
  params.scores = static_cast<float*>(scores.data);
  params.score_token = stride_along(scores, 0);
  params.columns = static_cast<int>(is_paged ? sizes["columns"] : sizes["keys"]);
  if (tokens == 0 || params.columns == 0) return false;
  if (params.pages == 0) refuse("k", "has no pages, and scores have columns");
  params.tokens = static_cast<int>(tokens / entries);
  params.token_tiles = ceil_div(params.tokens, score_keys_columns / spec.heads);
  params.columns_of_tokens = params.token_tiles * static_cast<int>(entries);
  return true;
}

void fill_work(const ScoreKeysSpec& spec, const ScoreKeysArguments& arguments, int sm_count,
               ScoreKeysParams& params) {
  const TensorView &q = arguments.q, &k = arguments.k;
  const bool is_paged = spec.page_size > 0;
  const int entries = params.columns_of_tokens / params.token_tiles;
  params.q = map_panels({.name = "q",
                         .data = q.data,
                         .strides = {.batch = stride_along(q, 0) * params.tokens,
                                     .seq = stride_along(q, 1),
                                     .head = stride_along(q, 0)},
                         .batch = entries,
                         .seqlen = spec.heads,
                         .heads = params.tokens,
                         .columns = spec.head_dim,
                         .box_rows = spec.heads,
                         .dtype = spec.dtype});
  params.k = map_panels({.name = "k",
                         .data = k.data,
                         .strides = {.batch = is_paged ? stride_along(k, 0) : 0,
                                     .seq = stride_along(k, is_paged ? 1 : 0),
                                     .head = 0},
                         .batch = params.pages,
                         .seqlen = is_paged ? spec.page_size : k.shape[0],
                         .heads = 1,
                         .columns = spec.head_dim,
                         .box_rows = score_keys_box(spec.page_size),
                         .dtype = spec.dtype});
  // Chunks of few key tiles balance better; large ones amortize queries and weights.
  constexpr int least_chunk = 4, most_chunk = 32, items_of_block = 8;
  const int tiles = ceil_div(params.columns, score_keys_tile);
  const std::int64_t even =
      std::int64_t{tiles} * params.columns_of_tokens / (std::int64_t{items_of_block} * sm_count);
  params.chunk_tiles = static_cast<int>(std::clamp<std::int64_t>(even, least_chunk, most_chunk));
  const std::int64_t items = std::int64_t{params.columns_of_tokens} * ceil_div(tiles, params.chunk_tiles);
  // Blocks count up to one grid past the end.
  if (items > std::numeric_limits<std::int32_t>::max() - sm_count)
    refuse("scores", fmt::format("has {} tiles; at most {} fit", items,
                                 std::numeric_limits<std::int32_t>::max() - sm_count));
  params.items = static_cast<int>(items);
}

}  // namespace jit
