#include "generator/operations/block_mask/arguments.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "generator/operations/block_mask/program.h"
#include "generator/problem/arguments.h"
#include "generator/tensors/tensor_checks.h"
#include "templates/base/bit_words.cuh"

namespace jit {
namespace {

constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max() - 4096;

void check_length(std::string_view name, std::int64_t value) {
  if (value < 0 || value > most_tokens)
    refuse(name, fmt::format("is {}; it must be from 0 to {}", value, most_tokens));
}

// Checks a caller's tensor, and returns its strides in `strides`. Its first two sizes may be 1 to broadcast.
template <std::size_t count>
void read(std::string_view name, const TensorView& tensor, DType dtype,
          const std::array<std::pair<std::string_view, std::int64_t>, count>& dims,
          long long (&strides)[count]) {
  if (tensor.rank != static_cast<int>(count))
    refuse(name, fmt::format("has {} dimensions; it must have {}", tensor.rank, count));
  check_dtype(name, tensor, dtype);
  check_sizes_and_strides(name, tensor);
  for (std::size_t i = 0; i < count; ++i) {
    const int at = static_cast<int>(i);
    const bool is_for_all = i < 2 && tensor.shape[at] == 1;
    if (!is_for_all && dims[i].second >= 0) check_size(name, tensor, at, dims[i].first, dims[i].second);
    strides[i] = tensor.shape[at] > 1 ? tensor.strides[at] : 0;
  }
  check_pointer(name, tensor, size_of(dtype));
}

// An array of lengths or boundaries; null if absent.
const int* read_array(std::string_view name, const TensorView& tensor, std::int64_t size) {
  if (!tensor.is_present()) return nullptr;
  long long strides[1];
  read<1>(name, tensor, DType::int32, {{{"size", size}}}, strides);
  check_dense_last(name, tensor);
  return static_cast<const int*>(tensor.data);
}

struct Sizes {
  std::int64_t batch, heads, rows, columns;
};

BlockLists read_lists(std::string_view name, const BlockListViews& lists, const Sizes& sizes) {
  BlockLists result{};
  const std::string counts = fmt::format("{}.counts", name), indptr = fmt::format("{}.indptr", name),
                    indices = fmt::format("{}.indices", name);
  const bool has_counts = lists.counts.is_present(), has_indptr = lists.indptr.is_present();
  if (!has_counts && !has_indptr && !lists.indices.is_present()) return result;
  if (!has_counts && !has_indptr) refuse(counts, "is missing, and so is indptr, and indices are given");
  if (has_counts && has_indptr) refuse(indptr, "was given beside counts; rows are told by one of them");
  if (!lists.indices.is_present())
    refuse(indices, fmt::format("is missing, and {} given", has_counts ? "counts are" : "indptr is"));
  const auto capacity_of = [&](int dimension) {
    return static_cast<int>(
        std::min<std::int64_t>(lists.indices.shape[dimension], std::numeric_limits<int>::max()));
  };
  result.indices = static_cast<const int*>(lists.indices.data);
  if (has_indptr) {
    read<3>(indptr, lists.indptr, DType::int32,
            {{{"batch", sizes.batch}, {"heads", sizes.heads}, {"rows + 1", sizes.rows + 1}}},
            result.count_strides);
    read_array(indices, lists.indices, -1);
    result.begins = static_cast<const int*>(lists.indptr.data);
    result.capacity = capacity_of(0);
    return result;
  }
  read<3>(counts, lists.counts, DType::int32,
          {{{"batch", sizes.batch}, {"heads", sizes.heads}, {"rows", sizes.rows}}}, result.count_strides);
  long long strides[4];
  read<4>(indices, lists.indices, DType::int32,
          {{{"batch", sizes.batch}, {"heads", sizes.heads}, {"rows", sizes.rows}, {"capacity", -1}}},
          strides);
  check_dense_last(indices, lists.indices);
  std::copy_n(strides, 3, result.index_strides);
  result.counts = static_cast<const int*>(lists.counts.data);
  result.capacity = capacity_of(3);
  return result;
}

// Checks that an output is given if and only if spec.scores requests it.
void check_presence(std::string_view name, const TensorView& tensor, bool is_wanted) {
  if (tensor.is_present() == is_wanted) return;
  refuse(name, is_wanted ? "is missing; spec.scores is true" : "was given; spec.scores is false");
}

void read_scores(const BlockMaskSpec& spec, const BlockMaskArguments& arguments, const Sizes& sizes,
                 BlockMaskParams& params) {
  check_presence("block_places", arguments.block_places, spec.scores);
  check_presence("block_scores", arguments.block_scores, spec.scores);
  if (!spec.scores) return;
  const auto read_written = [&](std::string_view name, const TensorView& tensor,
                                std::pair<std::string_view, std::int64_t> third,
                                std::pair<std::string_view, std::int64_t> last, long long(&strides)[3]) {
    long long all[4];
    read<4>(name, tensor, DType::int32, {{{"batch", sizes.batch}, {"heads", sizes.heads}, third, last}}, all);
    check_size(name, tensor, 0, "batch", sizes.batch);
    check_size(name, tensor, 1, "heads", sizes.heads);
    check_dense_last(name, tensor);
    std::copy_n(all, 3, strides);
  };
  read_written("block_places", arguments.block_places, {"block_rows", sizes.rows},
               {"block_columns", sizes.columns}, params.place_strides);
  read_written("block_scores", arguments.block_scores, {"room", -1},
               {"score_words", score_words(spec.block_q, spec.block_kv)}, params.score_strides);
  params.places = static_cast<int*>(arguments.block_places.data);
  params.scores = static_cast<unsigned*>(arguments.block_scores.data);
  params.block_columns = static_cast<int>(sizes.columns);
  params.room = static_cast<int>(
      std::min<std::int64_t>(arguments.block_scores.shape[2], std::numeric_limits<int>::max()));
}

// Checks that `written` overlaps no input.
void check_apart(std::string_view name, const TensorView& written, const BlockMaskArguments& arguments) {
  check_no_self_overlap(name, written);
  for (const auto& [other, tensor] : {std::pair<std::string_view, const TensorView&>{"map", arguments.map},
                                      {"partial.counts", arguments.partial.counts},
                                      {"partial.indptr", arguments.partial.indptr},
                                      {"partial.indices", arguments.partial.indices},
                                      {"full.counts", arguments.full.counts},
                                      {"full.indptr", arguments.full.indptr},
                                      {"full.indices", arguments.full.indices},
                                      {"cu_seqlens_q", arguments.cu_seqlens_q},
                                      {"cu_seqlens_k", arguments.cu_seqlens_k},
                                      {"seqused_q", arguments.seqused_q},
                                      {"seqused_k", arguments.seqused_k},
                                      {"cache_leftpad", arguments.cache_leftpad}}) {
    if (tensor.is_present()) check_no_overlap(name, written, other, tensor);
  }
  for (const NamedTensor& tensor : arguments.tensors)
    check_no_overlap(name, written, tensor.name, tensor.tensor);
}

void check_apart(const BlockMaskArguments& arguments) {
  const auto& [table, places, scores] =
      std::tie(arguments.block_mask, arguments.block_places, arguments.block_scores);
  check_apart("block_mask", table, arguments);
  if (!places.is_present()) return;
  check_apart("block_places", places, arguments);
  check_apart("block_scores", scores, arguments);
  check_no_overlap("block_places", places, "block_mask", table);
  check_no_overlap("block_scores", scores, "block_mask", table);
  check_no_overlap("block_scores", scores, "block_places", places);
}

}  // namespace

std::array<std::int64_t, 4> block_mask_shape(const BlockMaskSpec& spec, std::int64_t batch,
                                             std::int64_t heads, std::int64_t seqlen_q,
                                             std::int64_t seqlen_kv) {
  const auto [b, h, rows, columns] = block_places_shape(spec, batch, heads, seqlen_q, seqlen_kv);
  return {b, h, rows, 2 * words_of(columns) + 1};
}

std::array<std::int64_t, 4> block_places_shape(const BlockMaskSpec& spec, std::int64_t batch,
                                               std::int64_t heads, std::int64_t seqlen_q,
                                               std::int64_t seqlen_kv) {
  const auto blocks = [](std::int64_t length, int side) { return (length + side - 1) / side; };
  return {batch, heads, blocks(seqlen_q, spec.block_q), blocks(seqlen_kv, spec.block_kv)};
}

std::array<std::int64_t, 4> block_scores_shape(const BlockMaskSpec& spec, std::int64_t batch,
                                               std::int64_t heads, std::int64_t room) {
  return {batch, heads, room, score_words(spec.block_q, spec.block_kv)};
}

BlockMaskGrids fill_params(const BlockMaskSpec& spec, const BlockMaskArguments& arguments,
                           BlockMaskParams& params) {
  params = {};
  check_length("seqlen_q", arguments.seqlen_q);
  check_length("seqlen_kv", arguments.seqlen_kv);
  check_length("total_q", arguments.total_q);
  check_length("total_k", arguments.total_k);
  const TensorView& table = arguments.block_mask;
  const std::int64_t batch = table.rank == 4 ? table.shape[0] : 0,
                     heads = table.rank == 4 ? table.shape[1] : 0;
  auto shape = block_mask_shape(spec, batch, heads, arguments.seqlen_q, arguments.seqlen_kv);
  const std::int64_t bit_words = shape[3] - 1;
  const bool has_order = table.rank != 4 || table.shape[3] != bit_words;
  if (!has_order) shape[3] = bit_words;
  const Sizes sizes{batch, heads, shape[2],
                    block_places_shape(spec, batch, heads, arguments.seqlen_q, arguments.seqlen_kv)[3]};
  long long strides[4];
  read<4>("block_mask", table, DType::int32,
          {{{"batch", batch}, {"heads", heads}, {"block_rows", shape[2]}, {"block_words", shape[3]}}},
          strides);
  check_dense_last("block_mask", table);
  const std::int64_t heads_q = arguments.heads_q == 0 ? heads : arguments.heads_q;
  if (heads != 1 && heads != heads_q)
    refuse("block_mask", fmt::format("has {} heads; it must have 1, or heads_q = {}", heads, heads_q));
  params.words = static_cast<unsigned*>(table.data);
  params.batch_stride = strides[0], params.head_stride = strides[1], params.row_stride = strides[2];
  params.heads = static_cast<int>(heads);
  params.heads_q = static_cast<int>(heads_q);
  params.block_rows = static_cast<int>(shape[2]);
  params.block_words = static_cast<int>(bit_words);
  params.cut_row = arguments.seqlen_q % spec.block_q != 0 ? params.block_rows - 1 : -1;
  params.seqlen_q = static_cast<int>(arguments.seqlen_q);
  params.seqlen_kv = static_cast<int>(arguments.seqlen_kv);

  SequenceParams& sequences = params.sequences;
  if (spec.varlen_q != arguments.cu_seqlens_q.is_present())
    refuse("cu_seqlens_q",
           spec.varlen_q ? "is missing; spec.varlen_q is true" : "was given; spec.varlen_q is false");
  if (spec.varlen_kv != arguments.cu_seqlens_k.is_present())
    refuse("cu_seqlens_k",
           spec.varlen_kv ? "is missing; spec.varlen_kv is true" : "was given; spec.varlen_kv is false");
  sequences.cu_seqlens_q = read_array("cu_seqlens_q", arguments.cu_seqlens_q, batch + 1);
  sequences.cu_seqlens_k = read_array("cu_seqlens_k", arguments.cu_seqlens_k, batch + 1);
  sequences.seqused_q = read_array("seqused_q", arguments.seqused_q, batch);
  sequences.seqused_k = read_array("seqused_k", arguments.seqused_k, batch);
  sequences.cache_leftpad = read_array("cache_leftpad", arguments.cache_leftpad, batch);
  sequences.total_q = static_cast<int>(arguments.total_q);
  sequences.total_k = static_cast<int>(arguments.total_k);

  const AttentionSpec attention = attention_of(spec);
  Extents extents{.batch = batch,
                  .seqlen_q = spec.varlen_q ? arguments.total_q : arguments.seqlen_q,
                  .seqlen_kv = spec.varlen_kv ? arguments.total_k : arguments.seqlen_kv,
                  .heads_q = heads_q,
                  .total_q = arguments.total_q,
                  .total_k = arguments.total_k};
  if (!spec.varlen_q) extents.words = words_of(extents.seqlen_q);
  fill_functor_tensors(attention, functor_tensor_uses(attention), arguments.tensors, extents,
                       params.sequences.cu_seqlens_k, params.tensors);
  if (arguments.map.is_present()) {
    const auto is_given = [](const BlockListViews& lists) {
      return lists.counts.is_present() || lists.indptr.is_present();
    };
    if (is_given(arguments.partial) || is_given(arguments.full))
      refuse("map", "was given beside lists; blocks are named by one of them");
    read<4>("map", arguments.map, DType::uint8,
            {{{"batch", batch}, {"heads", heads}, {"rows", sizes.rows}, {"columns", sizes.columns}}},
            params.map_strides);
    params.map = static_cast<const unsigned char*>(arguments.map.data);
  }
  params.partial = read_lists("partial", arguments.partial, sizes);
  params.full = read_lists("full", arguments.full, sizes);
  read_scores(spec, arguments, sizes, params);
  check_apart(arguments);

  const std::int64_t pairs = bit_words / 2, rows = batch * heads * shape[2];
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (rows > most / std::max<std::int64_t>(pairs, 1))
    refuse("block_mask", fmt::format("has {} rows of {} words; make it of larger blocks", rows, shape[3]));
  params.rows = static_cast<unsigned>(rows);
  constexpr unsigned rows_of_block = block_mask_threads / 32;  // one warp per row
  const std::int64_t parts = (shape[2] + ordered_rows - 1) / ordered_rows;
  const auto groups = static_cast<unsigned>(rows * pairs);
  const auto is_listed = [](const BlockLists& lists) {
    return lists.counts != nullptr || lists.begins != nullptr;
  };
  const bool has_lists = is_listed(params.partial) || is_listed(params.full);
  return {.classes = has_lists ? 0 : groups,
          .lists = has_lists && pairs > 0 ? (params.rows + rows_of_block - 1) / rows_of_block : 0,
          .order = has_order ? static_cast<unsigned>(batch * heads * parts) : 0,
          .scores = spec.scores ? groups : 0};
}

}  // namespace jit
