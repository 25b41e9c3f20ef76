// The steps before and behind the kernel of lists of blocks by wgmma: the numbers of blocks that entries name, LSE and delta of
// each row, zeros of keys that are no sequence's, and dQ, which each tile has left a part of.
#pragma once

#include "backward/dq_sums.cuh"
#include "backward_wgmma/traits.cuh"
#include "backward_wgmma_lists/params.cuh"
#include "base/row_pieces.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/gradients.cuh"
#include "problem/key_lists.cuh"

namespace jit::backward_wgmma {

/// The Config of the lists: batch entries are lists.
template <class Config>
struct Listed : Config {
  using Lists = typename Config::QueryLists;
};

/// The thread of the grid.
JIT_DEVICE long long listed_thread() {
  return static_cast<long long>(blockIdx.x) * listed_threads + threadIdx.x;
}

/// A thread has an entry of a query's list, and a counter of a block.
template <class Config>
JIT_DEVICE void number_blocks(const ListedParams& params) {
  using Lists = typename Config::QueryLists;
  const AttentionParams& attention = params.attention;
  const ListedWork& work = params.work;
  const long long own = listed_thread();
  const int heads = attention.heads_kv;
  if (own < static_cast<long long>(heads) * work.block_limit) work.done[own] = 0;
  if (own >= static_cast<long long>(work.queries) * heads * work.entries) return;
  const int i = static_cast<int>(own % work.entries), kv_head = static_cast<int>(own / work.entries % heads);
  const int query = static_cast<int>(own / work.entries / heads), row = work.first_query + query;
  const int list = row / Lists::queries, member = row % Lists::queries;
  const ListOwner owner = owner_of<Listed<Config>>(attention, list);
  // mutate: QueriesBehindTheSequence
  const int count = member < owner.queries ? Lists::count(attention.tensors, list, kv_head) : 0;
  const int entry = Lists::entry(attention.tensors, list, kv_head, i, count);
  bool counts = Lists::template position_in<Listed<Config>>(attention, owner, entry, 0) >= 0;
  if constexpr (Lists::queries > 1) {
    const unsigned seen_by = Lists::members(attention.tensors, list, kv_head, i * Lists::block);
    counts = counts && (seen_by >> member & 1) != 0;  // mutate: EntriesOfRowsBeside
  }
  const int first = static_cast<int>(first_varlen_tile(owner.sequence, owner.kv.begin, Lists::block));
  work.blocks[own] = counts ? first + entry : -1;  // mutate: BlocksOfListedEntriesThatAreNone
  work.slots[(static_cast<long long>(kv_head) * work.queries + query) * work.entries + i] = -1;
}

/// Some lanes have a row of a head.
template <class Config>
JIT_DEVICE void find_row_numbers(const ListedParams& params) {
  using Element = typename Config::Element;
  constexpr int lanes = listed_row_lanes, piece = ElementTraits<Element>::per_chunk;
  const AttentionParams& attention = params.attention;
  const GradientParams& gradients = params.gradients;
  const long long own = listed_thread() / lanes;
  const int heads = attention.heads_q, total = attention.sequences.total_q;
  const bool exists = own < static_cast<long long>(total) * heads;
  const int row = exists ? static_cast<int>(own / heads) : 0,
            head = exists ? static_cast<int>(own % heads) : 0;
  const ListOwner owner = owner_of<Listed<Config>>(attention, row / Config::QueryLists::queries);
  // mutate: NumbersOfRowsBehindTheSequence
  const bool is_seen = exists && row % Config::QueryLists::queries < owner.queries;
  float delta = 0, lse = negative_infinity();
  if (is_seen) {
    const auto row_of = [&](auto* first, const TensorStrides& strides) {
      return first + row * strides.seq + head * strides.head;
    };
    const Element* const x = row_of(static_cast<const Element*>(gradients.d_o), gradients.do_strides);
    const Element* const y = row_of(static_cast<const Element*>(attention.o), attention.o_strides);
    for (int d = static_cast<int>(threadIdx.x) % lanes * piece; d < Config::head_dim_v; d += lanes * piece) {
      float a[piece], b[piece];
      load_piece<Config::alignment>(x + d, a);
      load_piece<Config::alignment>(y + d, b);
#pragma unroll
      for (int i = 0; i < piece; ++i) delta = __fmaf_rn(a[i], b[i], delta);
    }
    lse = *row_of(attention.lse, attention.lse_strides);
  }
#pragma unroll
  for (int step = 1; step < lanes; step *= 2) delta += __shfl_xor_sync(full_warp, delta, step);
  if (!exists || threadIdx.x % lanes != 0) return;
  if (gradients.d_lse != nullptr && lse != negative_infinity())
    // mutate: ListedRowsWithoutGradientOfLse
    delta -= gradients.d_lse[row * gradients.d_lse_strides.seq + head * gradients.d_lse_strides.head];
  if (gradients.d_sinks != nullptr) gradients.delta[static_cast<long long>(head) * total + row] = delta;
  params.work.rows[own] = {lse_exponent(lse), -delta};
}

/// A thread has a row of a KV head.
template <class Config>
JIT_DEVICE void clear_other_keys(const ListedParams& params) {
  using Element = typename Config::Element;
  const AttentionParams& attention = params.attention;
  const GradientParams& gradients = params.gradients;
  const int heads = attention.heads_kv;
  const long long own = listed_thread();
  if (own >= static_cast<long long>(attention.sequences.total_k) * heads) return;
  const int row = static_cast<int>(own / heads), head = static_cast<int>(own % heads);
  const int sequences = attention.tensors[Config::QueryLists::slot].rows;
  int sequence = 0;
#pragma unroll 1
  for (int end = sequences; end - sequence > 1;) {
    const int middle = (sequence + end) / 2;
    (attention.sequences.cu_seqlens_k[middle] <= row ? sequence : end) = middle;
  }
  if (sequences > 0) {
    const Sequence kv = VariableSequences<Config>(attention).stored_kv(sequence);
    if (row >= kv.begin && row < kv.begin + kv.length) return;
  }
  const auto clear = [&](void* first, const TensorStrides& strides, int columns) {
    uint4* const to =
        reinterpret_cast<uint4*>(static_cast<Element*>(first) + row * strides.seq + head * strides.head);
    for (int i = 0; i < columns / ElementTraits<Element>::per_chunk; ++i) to[i] = make_uint4(0, 0, 0, 0);
  };
  clear(gradients.dk, gradients.dk_strides, Config::head_dim);
  clear(gradients.dv, gradients.dv_strides, Config::head_dim_v);
}

/// A thread has two columns of a row, in the order in which parts lie: those of a query and a KV head follow one another.
template <class Config>
JIT_DEVICE void sum_queries(const ListedParams& params) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  constexpr int ratio = Config::gqa_ratio, tile_slots = listed_tile_slots(ratio);
  constexpr int octet = minimum(ratio, 8), halves = ratio >= 16 ? 2 : 1, warps = maximum(1, ratio / 16);
  constexpr int blocks = Traits::dq_columns / 8;  // of 8 columns, of a part
  constexpr int of_query = Traits::dq_parts * blocks * warps * octet * 4 * halves;
  const AttentionParams& attention = params.attention;
  const ListedWork& work = params.work;
  const long long own = listed_thread();
  const int heads = attention.heads_kv;
  if (own >= static_cast<long long>(work.queries) * heads * of_query) return;
  const int place = static_cast<int>(own % of_query);
  const int kv_head = static_cast<int>(own / of_query % heads),
            query = static_cast<int>(own / of_query / heads);
  const int half = place % halves, lane = place / halves % (octet * 4),
            warp = place / halves / (octet * 4) % warps, block = place / halves / (octet * 4) / warps;
  const int head = warp * 16 + half * 8 + lane / 4, column = block * 8 + lane % 4 * 2;

  const int* const slots =
      work.slots + (static_cast<long long>(kv_head) * work.queries + query) * work.entries;
  const float* const parts =
      dq_sums<Traits>(params.gradients, static_cast<long long>(kv_head) * work.head_tiles) +
      block / blocks * Traits::dq_part_floats + block % blocks * warpgroup_size * 4;
  float2 sum = make_float2(0, 0);
#pragma unroll 4
  for (int i = 0; i < work.entries; ++i) {
    const int slot = slots[i], row = slot % tile_slots * ratio + head;
    const int offset = (row / 16 * warp_size + row % 8 * 4 + lane % 4) * 4 + row % 16 / 8 * 2;
    const float* const part =
        parts + static_cast<long long>(slot / tile_slots) * Traits::dq_tile_floats + offset;
    float2 x = make_float2(0, 0);  // without a branch several loads are on their way
    if (slot >= 0) x = *reinterpret_cast<const float2*>(part);
    sum = make_float2(sum.x + x.x, sum.y + x.y);
  }
  if (column >= Config::head_dim) return;
  const TensorStrides& to = params.gradients.dq_strides;
  const float scale = attention.softmax_scale;  // mutate: DqOfListedRowsUnscaled
  Element* const dq = static_cast<Element*>(params.gradients.dq) + (work.first_query + query) * to.seq +
                      (kv_head * ratio + head) * to.head + column;
  *reinterpret_cast<unsigned*>(dq) = pack<Element>(sum.x * scale, sum.y * scale);
}

template <class Config>
JIT_DEVICE void listed_rows(const ListedParams& params) {
  wait_on_dependent_grids();  // mutate: RowsOfListsThatAreNotThere
  switch (params.step) {
    case ListedStep::number:
      number_blocks<Config>(params);
      break;
    case ListedStep::rows:
      find_row_numbers<Config>(params);
      break;
    case ListedStep::zeros:
      clear_other_keys<Config>(params);
      break;
    case ListedStep::queries:
      sum_queries<Config>(params);
      break;
  }
  launch_dependent_grids();
}

}  // namespace jit::backward_wgmma
