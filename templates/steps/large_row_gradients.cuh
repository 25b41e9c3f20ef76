// Gradients of large rows (steps/large_rows.cuh), in fp32, summed in the order of queries and of keys: a warp sums a
// row of dq, or the rows of dk and dv of a key, 32 pairs of a query and a key at a time. This is slow, and rare:
// padding rows whose keys all have a bias of −1e9, or diverged training.
#pragma once

#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/gradients.cuh"
#include "ptx/atomic.cuh"
#include "ptx/relaxed.cuh"
#include "steps/dropout.cuh"
#include "steps/large_rows.cuh"

namespace jit {

/// A row of a gradient, which a warp sums: lane l has elements l, l + 32 …
template <int elements>
class RowSum {
 public:
  /// Adds rows of tensors: lane j has the weight of row j.
  template <class RowAt>
  JIT_DEVICE void add(float weight, const RowAt& row_at) {
    unsigned left = __ballot_sync(full_warp, weight != 0);
#pragma unroll 1
    while (left != 0) {
      const int j = __ffs(static_cast<int>(left)) - 1;
      left &= left - 1;
      const float own = __shfl_sync(full_warp, weight, j);
      const auto* const row = row_at(j);
      for_each_element([&](float& sum, int d) { sum = __fmaf_rn(own, to_float(row[d]), sum); });
    }
  }
  template <class Element>
  JIT_DEVICE void store(Element* row, float factor) {
    for_each_element([&](float sum, int d) { store_element(row + d, sum * factor); });
  }
  /// Adds to what is there.
  template <class Element>
  JIT_DEVICE void add_to(Element* row, float factor) {
    for_each_element(
        [&](float sum, int d) { store_element(row + d, __fmaf_rn(sum, factor, to_float(row[d]))); });
  }

 private:
  template <class F>
  JIT_DEVICE void for_each_element(const F& f) {
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      const int d = i * warp_size + lane_id();
      if (d < elements) f(sums_[i], d);
    }
  }
  template <class Element>
  static JIT_DEVICE void store_element(Element* element, float x) {
    const float value[1] = {x};
    store_piece<static_cast<int>(sizeof(Element))>(element, value);
  }

  static constexpr int per_lane = (elements + warp_size - 1) / warp_size;
  float sums_[per_lane] = {};
};

/// Whether dropout keeps a score.
template <class Config>
JIT_DEVICE bool keeps_score(const AttentionParams& params, int batch, int head, int query, int key) {
  if constexpr (has_dropout<Config>) {
    return dropout_head<Config>(params.dropout, params.heads_q, batch, head, params.tensors)
        .keeps(query, key);
  } else {
    return true;
  }
}

/// Writes the row of dq of a large row, whose delta is that of QueryStatistics. By a whole warp.
template <class Config, class Element>
JIT_DEVICE void write_large_row(const AttentionParams& params, const LargeRows<Config>& rows, int query,
                                const RowOrigin& origin, float delta, Element* dq_row) {
  const KeyRange keys = rows.keys(query);
  const int batch = rows.context().batch, head = rows.context().head;
  RowSum<Config::head_dim> dq;
#pragma unroll 1
  for (int begin = keys.begin; begin < keys.end; begin += warp_size) {
    const int key = begin + lane_id();
    float ds = 0;
    if (key < keys.end && rows.sees(query, key))
      ds = rows.gradient(query, key, origin, delta, keeps_score<Config>(params, batch, head, query, key)).ds;
    dq.add(ds, [&](int j) { return rows.key_row(begin + j); });
  }
  // mutate: DqOfLargeRowsUnscaled
  dq.store(dq_row, over_keep_probability<Config>(params.softmax_scale, params.dropout));
}

/// Adds the gradients of large rows to the rows of dk or dv, or both, of keys [first_key, end_key), one warp per key.
/// By `warps` warps, of which this is `warp`. `place(head, query)` is the index of a query's statistics; `delta_factor`
/// turns the stored delta into that of QueryStatistics.
template <class Config, bool has_dk, bool has_dv, class Place>
JIT_DEVICE void add_large_rows(const AttentionParams& params, const GradientParams& gradient_params,
                               const SequencesOf<Config>& sequences, int batch, int kv_head, int first_key,
                               int end_key, const Place& place, float delta_factor, int warp = warp_id(),
                               int warps = static_cast<int>(blockDim.x) / warp_size) {
  constexpr int searched = 4 * warp_size;  // queries tested at once
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const int seqlen_q = sequences.q(batch).length;
  const auto is_left_out = [&](int head, int query) {
    return query < seqlen_q && gradient_params.lse_log2[place(head, query)] == -negative_infinity();
  };
#pragma unroll 1
  for (int key = first_key + warp; key < end_key; key += warps) {
    RowSum<Config::head_dim> dk;
    RowSum<Config::head_dim_v> dv;
    bool has_some = false;
#pragma unroll 1
    // mutate: LargeRowsOfOneHead
    for (int head = kv_head * Config::gqa_ratio; head < (kv_head + 1) * Config::gqa_ratio; ++head) {
      const LargeRows<Config> rows(params, gradient_params, sequences, batch, head);
#pragma unroll 1
      for (int begin = 0; begin < seqlen_q; begin += warp_size) {
        if (begin % searched == 0) {
          bool any = false;
#pragma unroll
          for (int i = 0; i < searched; i += warp_size) any |= is_left_out(head, begin + i + lane_id());
          if (!__any_sync(full_warp, any)) {
            begin += searched - warp_size;
            continue;
          }
        }
        const int query = begin + lane_id();
        PairGradient pair = {0, 0};
        if (is_left_out(head, query)) {
          const long long at = place(head, query);
          const RowOrigin origin = gradient_params.origins[at];
          if (is_large_row(origin) && rows.sees(query, key))
            pair = rows.gradient(query, key, origin, gradient_params.delta[at] * delta_factor,
                                 keeps_score<Config>(params, batch, head, query, key));
        }
        if (!__any_sync(full_warp, pair.p != 0 || pair.ds != 0)) continue;
        has_some = true;
        if constexpr (has_dk) dk.add(pair.ds, [&](int j) { return rows.query_row(begin + j); });
        if constexpr (has_dv) dv.add(pair.p, [&](int j) { return rows.do_row(begin + j); });
      }
    }
    if (!has_some) continue;
    if constexpr (has_dk) {
      // mutate: DkOfLargeRowsUnscaled
      const float factor = over_keep_probability<Config>(params.softmax_scale, params.dropout);
      dk.add_to(gradients.dk_rows(batch, kv_head).at(key), factor);
    }
    if constexpr (has_dv)
      dv.add_to(gradients.dv_rows(batch, kv_head).at(key),
                over_keep_probability<Config>(1.0f, params.dropout));
  }
}

/// Whether the call has large rows that see keys; valid until the last block has called `have_added_large_rows`.
JIT_DEVICE bool has_large_rows(const GradientParams& gradients) {
  return load_relaxed(gradients.large_rows) != 0;
}
/// Called once by each block of the last kernel, after a barrier behind has_large_rows(); thread `speaker` acts for the
/// block. The last block resets the counters to 0.
JIT_DEVICE void have_added_large_rows(const GradientParams& gradients, unsigned speaker = 0) {
  if (threadIdx.x != speaker) return;
  const unsigned last = gradients.large_row_blocks - 1;
  // mutate: TheNextCallHasLargeRows
  if (atomic_inc_acq_rel(gradients.large_rows + 1, last) == last) store_relaxed(gradients.large_rows, 0u);
}

}  // namespace jit
