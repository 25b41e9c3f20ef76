#include "generator/problem/tma_operands.h"

#include <algorithm>

#include "templates/base/ragged_tiles.cuh"

namespace jit {
namespace {

constexpr std::int64_t max_stride_bytes = std::int64_t{1} << 40;
// Strides of rows that are aligned as a whole are aligned in elements of 8 bits, too.
constexpr int element_size = 2;
constexpr int fewest_rows = 64;  // of a tile of queries that is copied by TMA

bool is_mappable(std::int64_t size, std::int64_t stride) {
  const std::int64_t bytes = stride * element_size;
  return size <= 1 || (bytes > 0 && bytes < max_stride_bytes && bytes % tma_alignment == 0);
}

// Places of tiles of ragged sequences are numbered as tiles are.
bool has_few_places(const AttentionParams& params) {
  const SequenceParams& sequences = params.sequences;
  const auto places = [&](const int* boundaries, int total) {
    return boundaries == nullptr ? 0 : ragged_tiles(params.batch, total, fewest_rows);
  };
  const long long most = std::max(places(sequences.cu_seqlens_q, sequences.total_q),
                                  places(sequences.cu_seqlens_k, sequences.total_k));
  return params.heads_q == 0 || most <= max_work_tiles / params.heads_q;
}

}  // namespace

std::array<TmaOperand, 4> tma_operands(const AttentionParams& params) {
  const SequenceParams& sequences = params.sequences;
  std::int64_t batch_q = params.batch, batch_kv = params.batch;
  std::int64_t rows_q = params.seqlen_q, rows_kv = params.seqlen_kv;
  if (sequences.cu_seqlens_q != nullptr) {
    batch_q = 1;
    rows_q = sequences.total_q;
  }
  if (sequences.cu_seqlens_k != nullptr) {
    batch_kv = 1;
    rows_kv = sequences.total_k;
  } else if (sequences.page_table != nullptr) {
    batch_kv = sequences.pages;
    rows_kv = params.seqlen_kv / std::max(1, sequences.max_pages);
  }
  return {{{"q", params.q, params.q_strides, batch_q, rows_q, params.heads_q},
           {"k", params.k, params.k_strides, batch_kv, rows_kv, params.heads_kv},
           {"v", params.v, params.v_strides, batch_kv, rows_kv, params.heads_kv},
           {"o", params.o, params.o_strides, batch_q, rows_q, params.heads_q}}};
}

GradientOperands tma_operands(const AttentionParams& params, const GradientParams& gradients) {
  const auto& [q, k, v, o] = tma_operands(params);
  return {.d_o = {"do", gradients.d_o, gradients.do_strides, q.batch, q.seqlen, q.heads},
          .dk = {"dk", gradients.dk, gradients.dk_strides, k.batch, k.seqlen, k.heads},
          .dv = {"dv", gradients.dv, gradients.dv_strides, v.batch, v.seqlen, v.heads}};
}

bool is_mappable(const TmaOperand& operand) {
  if (operand.seqlen == 0 || operand.batch == 0) return true;  // without keys nothing is read
  return reinterpret_cast<std::uintptr_t>(operand.data) % tma_alignment == 0 &&
         is_mappable(operand.batch, operand.strides.batch) &&
         is_mappable(operand.seqlen, operand.strides.seq) && is_mappable(operand.heads, operand.strides.head);
}

bool has_few_tiles(const AttentionParams& params) {
  const std::int64_t tiles = (std::int64_t{params.seqlen_q} + fewest_rows - 1) / fewest_rows;
  return params.heads_q == 0 || tiles <= max_work_tiles / params.heads_q;
}

bool can_map(const AttentionParams& params) {
  // A row that is not the first of a page begins no box.
  if (params.sequences.page_table != nullptr && params.sequences.cache_leftpad != nullptr) return false;
  const auto all = tma_operands(params);
  return std::all_of(all.begin(), all.end(), [](const TmaOperand& each) { return is_mappable(each); }) &&
         has_few_tiles(params);
}

bool can_map(const AttentionParams& params, const GradientParams& gradients) {
  const auto& [d_o, dk, dv] = tma_operands(params, gradients);
  return can_map(params) && is_mappable(d_o) && is_mappable(dk) && is_mappable(dv) && has_few_places(params);
}

}  // namespace jit
