// Attention the slow and plain way, to check the fast kernels against: one warp per query, 32 keys at a time,
// fp32 throughout. It shares the masks' `keep`, the scores' `apply` and the places of rows with them and
// nothing else: no tiles, no tile classes, no key ranges, no tensor cores.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "checks/reference_rows.cuh"
#include "epilogue/output_functor.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/sequences.cuh"
#include "ptx/fp8.cuh"
#include "ptx/stored_numbers.cuh"
#include "steps/dropout.cuh"

namespace jit {

/// The dequantization scale of a row of dense sequences; of a query where `head` is its own, or that of its
/// keys where they share a scale.
template <class Config>
JIT_DEVICE float descale_of(const float* scales, const TensorStrides& strides, int batch, int kv_head,
                            int key) {
  if constexpr (!keys_are_narrow<Config>) return 1;
  if (scales == nullptr) return 1;
  const int row = has_block_scales<Config> ? key / scale_block_rows : key;
  const float scale = scales[batch * strides.batch + kv_head * strides.head + row * strides.seq];
  return is_same<KvElement<Config>, int4_pair> ? without_zero_point(__float_as_int(scale)) : scale;
}

/// A number of a row of keys or values as it is stored, but for the scale of its token or head. `of_tokens` has zero
/// points, `of_blocks` scales of blocks of columns.
template <class Config, class Row>
JIT_DEVICE float stored_number(const Row* row, int column, const float* of_tokens,
                               const TensorStrides& token_strides, const unsigned char* of_blocks,
                               const TensorStrides& block_strides, int batch, int kv_head, int key) {
  const auto place = [&](const TensorStrides& strides) {
    return batch * strides.batch + kv_head * strides.head + key * strides.seq;
  };
  if constexpr (!keys_are_packed<Config>) {
    return to_float(row[column]);
  } else if constexpr (constexpr int block = scale_columns_of<Row>; block != 0) {
    return number_of_pair(row, column, 0) *
           block_scale<Row>(of_blocks[place(block_strides) + column / block]);
  } else {
    return number_of_pair(row, column, zero_point_of(__float_as_int(of_tokens[place(token_strides)])));
  }
}

template <class Config>
__device__ void attention_reference(const AttentionParams& params, const ReferenceRows& rows) {
  const DropoutParams& dropout_params = params.dropout;
  const DescaleParams& descale = params.descale;
  using Element = typename Config::Element;
  using Stored = KvElement<Config>;
  constexpr int values_per_lane = (Config::head_dim_v + warp_size - 1) / warp_size;
  const long long row = blockIdx.x * static_cast<long long>(blockDim.x / warp_size) + warp_id();
  if (row >= rows.count) return;

  // Row r of the sample is row (r · step) mod total of all (batch, head, query): spread over everything.
  const long long total = static_cast<long long>(params.batch) * params.heads_q * params.seqlen_q;
  const long long flat = row * rows.step % total;
  const int query = static_cast<int>(flat % params.seqlen_q);
  const int head = static_cast<int>(flat / params.seqlen_q % params.heads_q);
  const int batch = static_cast<int>(flat / params.seqlen_q / params.heads_q);

  const DenseSequences<Config> sequences(params);
  const BlockContext context = sequences.context(batch, head);
  const typename Config::Mask mask(context);
  const typename Config::Score score(context);
  const auto dropout = dropout_head<Config>(dropout_params, params.heads_q, batch, head, params.tensors);
  const int kv_head = sequences.kv_head(head);
  const auto keys = sequences.key_rows(batch, kv_head), values = sequences.value_rows(batch, kv_head);
  const Element* q = sequences.query_rows(batch, head).at(query);

  float row_max = negative_infinity(), row_sum = 0;
  float output[values_per_lane] = {};
  for (int k_begin = 0; k_begin < context.seqlen_kv; k_begin += warp_size) {
    const int key = k_begin + lane_id();
    float s = negative_infinity();
    if (key < context.seqlen_kv && mask.keep(query, key)) {
      const Stored* k = keys.at(key);
      float dot = 0;
      for (int d = 0; d < Config::head_dim; ++d)
        dot += to_float(q[d]) * stored_number<Config>(k, d, descale.k, descale.k_strides, descale.k_blocks,
                                                      descale.k_blocks_strides, batch, kv_head, key);
      if constexpr (keys_are_narrow<Config>)
        dot *=
            descale_of<Config>(descale.k, descale.k_strides, batch, kv_head, key) *
            descale_of<Config>(descale.q, descale.q_strides, batch,
                               has_token_scales<Config> || has_block_scales<Config> ? head : kv_head, query);
      s = score.apply(dot * params.softmax_scale, query, key);
    }
    float tile_max = s;
    for (int offset = warp_size / 2; offset > 0; offset /= 2) {
      tile_max = fmaxf(tile_max, __shfl_xor_sync(full_warp, tile_max, offset));
    }
    if (tile_max == negative_infinity()) continue;
    const float new_max = fmaxf(row_max, tile_max);
    const float correction = expf(row_max - new_max);
    float p = expf(s - new_max);
    row_max = new_max;
    row_sum = row_sum * correction + p;
    if constexpr (has_dropout<Config>) p = dropout.keeps(query, key) ? p * dropout_params.scale : 0;
    for (int i = 0; i < values_per_lane; ++i) output[i] *= correction;
    const int keys = minimum(warp_size, context.seqlen_kv - k_begin);
    for (int j = 0; j < keys; ++j) {
      float weight = __shfl_sync(full_warp, p, j);
      if (weight == 0) continue;
      if constexpr (keys_are_narrow<Config> && !has_channel_scales<Config>)
        weight *= descale_of<Config>(descale.v, descale.v_strides, batch, kv_head, k_begin + j);
      const int key = k_begin + j;
      for (int i = 0; i < values_per_lane; ++i) {
        const int d = i * warp_size + lane_id();
        if (d >= Config::head_dim_v) continue;
        output[i] +=
            weight * stored_number<Config>(values.at(key), d, descale.v, descale.v_strides, descale.v_blocks,
                                           descale.v_blocks_strides, batch, kv_head, key);
      }
    }
  }
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    row_sum += __shfl_xor_sync(full_warp, row_sum, offset);
  }
  for (int i = 0; i < values_per_lane; ++i) {
    const int d = i * warp_size + lane_id();
    if constexpr (has_channel_scales<Config>)
      output[i] *= descale_of<Config>(descale.v + d, descale.v_strides, batch, kv_head, 0);
    if constexpr (has_value_means<Config>)
      output[i] +=
          row_sum * descale_of<Config>(descale.v_mean + d, descale.v_mean_strides, batch, kv_head, 0);
    if (d >= Config::head_dim_v) continue;
    float values[1] = {row_sum == 0 ? 0 : output[i] / row_sum};
    if constexpr (has_output_functor<Config>)
      apply_output<Config>(typename Config::OutputFunctor(context), {context, query}, values, query, d);
    rows.o[row * Config::head_dim_v + d] = values[0];
  }
  if (lane_id() == 0) rows.lse[row] = row_sum == 0 ? negative_infinity() : row_max + logf(row_sum);
}

}  // namespace jit
