#include "generator/operations/list_gradients/listed_launch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <jit/dtype.h>

#include "generator/kernels/listed_gradients.h"
#include "generator/launch/tensor_maps.h"
#include "generator/operations/transpose_lists/launch.h"
#include "generator/problem/tma_operands.h"
#include "runtime/launch.h"
#include "templates/backward_wgmma_lists/params.cuh"
#include "templates/transpose_lists/params.cuh"

namespace jit {
namespace {

// How a call's lists take turns, and numbers of what its kernels leave for one another.
struct ListTurns {
  std::int64_t at_once;
  std::int64_t listed;  // entries of all queries and KV heads at once
  std::int64_t head_tiles, head_items, blocks;
  bool has_sums;
};

ListTurns turns_of(const ListGradientsSpec& spec, const ListGradientsWork& work,
                   const AttentionParams& params) {
  constexpr std::int64_t most_slots = 1 << 29;
  const AttentionSpec& attention = spec.attention;
  const std::int64_t slots = std::max<std::int64_t>(1, work.entries * attention.list_queries);
  const std::int64_t bytes = slots * params.heads_kv * listed_gradients::sizes(attention).tile_floats /
                             listed_tile_slots(attention.gqa_ratio) * std::int64_t{sizeof(float)};
  ListTurns turns{};
  turns.at_once = std::clamp<std::int64_t>(std::min(spec.part_bytes / bytes, most_slots / slots), 1,
                                           std::max<std::int64_t>(1, work.lists));
  turns.listed = turns.at_once * slots * params.heads_kv;
  turns.blocks = varlen_tiles(params.tensors[0].rows, params.sequences.total_k, attention.list_block);
  const std::int64_t most = turns.at_once * slots;
  const auto places = [&](int each) { return most / each + turns.blocks; };  // as varlen_tiles
  turns.head_tiles = places(listed_tile_slots(attention.gqa_ratio));
  turns.head_items = places(listed_item_slots(attention.gqa_ratio));
  turns.has_sums = turns.at_once < work.lists || most > listed_item_slots(attention.gqa_ratio);
  return turns;
}

// Hands out memory in pieces that begin at multiples of 16 bytes; without memory it only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class T>
  void next(T*& array, std::int64_t numbers) {
    array = reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (numbers * static_cast<std::int64_t>(sizeof(T)) + 15) / 16 * 16;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(bytes_); }

 private:
  std::byte* memory_;
  std::int64_t bytes_ = 0;
};

std::size_t place(const ListGradientsSpec& spec, const ListGradientsWork& work, const ListTurns& turns,
                  std::byte* memory, const AttentionParams& params, GradientParams& gradients,
                  ListedWork& listed, TransposeListsParams& transpose) {
  const auto [tile_floats, sum_floats] = listed_gradients::sizes(spec.attention);
  const std::int64_t heads = params.heads_kv, limit = work.block_limit;
  const std::int64_t rows = std::int64_t{params.heads_q} * params.sequences.total_q;
  Pieces pieces(memory);
  pieces.next(gradients.dq_sums, heads * turns.head_tiles * tile_floats);
  pieces.next(listed.sums, turns.has_sums ? heads * limit * sum_floats : 0);
  pieces.next(listed.rows, rows);
  pieces.next(gradients.delta, rows);
  pieces.next(listed.blocks, turns.listed);
  pieces.next(listed.slots, turns.listed);
  pieces.next(listed.done, heads * limit);
  pieces.next(transpose.starts, heads * (limit + 1));
  pieces.next(transpose.places, turns.listed);
  pieces.next(transpose.unordered, turns.listed);
  pieces.next(transpose.cursors, heads * limit);
  return pieces.bytes();
}

// Boxes of the heads of a row that share keys: the map of a tensor whose heads are rows.
TensorMap map_heads(const AttentionSpec& spec, const TmaOperand& operand, int columns) {
  return map_panels(
      {.name = operand.name,
       .data = operand.data,
       .strides = {.batch = operand.strides.batch, .seq = operand.strides.head, .head = operand.strides.seq},
       .batch = operand.batch,
       .seqlen = operand.heads,
       .heads = operand.seqlen,
       .columns = columns,
       .box_rows = spec.gqa_ratio,
       .dtype = spec.dtype});
}

ListedMaps maps_of(const AttentionSpec& spec, const AttentionParams& params,
                   const GradientParams& gradients) {
  const MapBoxes boxes{.rows_q = rows_per_warpgroup, .rows_kv = spec.list_block, .rows_dkv = gradient_rows};
  const MappedGradients part = map_bounded_gradients(spec, boxes, params, gradients);
  const MappedKeys keys = map_keys(spec, spec.list_block, params);
  ListedMaps maps{};
  maps.q = map_heads(spec, tma_operands(params)[0], spec.head_dim);
  maps.d_o = map_heads(spec, tma_operands(params, gradients).d_o, spec.value_head_dim());
  maps.k = keys.k;
  maps.v = keys.v;
  maps.bounded_k = part.k;
  maps.bounded_v = part.v;
  return maps;
}

}  // namespace

bool can_launch_listed(const ListGradientsParams& params) {
  const SequenceParams& sequences = params.attention.sequences;
  return sequences.total_q > 0 && sequences.total_k > 0 && params.attention.tensors[0].rows > 0 &&
         can_map(params.attention, params.gradients);
}

void launch_listed(const ListGradientsSpec& spec, const ListGradientsWork& work, const LoadedKernel& kernel,
                   const LoadedKernel& transposing, StreamLease& lease, ListGradientsParams& params,
                   Stream stream) {
  const AttentionSpec& attention = spec.attention;
  const ListTurns turns = turns_of(spec, work, params.attention);
  TransposeListsParams transpose{};
  ListedParams rows{.attention = params.attention, .gradients = params.gradients, .work = {}, .step = {}};
  const std::size_t bytes =
      place(spec, work, turns, nullptr, rows.attention, rows.gradients, rows.work, transpose);
  place(spec, work, turns, static_cast<std::byte*>(lease.workspace(bytes)), rows.attention, rows.gradients,
        rows.work, transpose);
  params.gradients.delta = rows.gradients.delta;
  rows.work.starts = transpose.starts;
  rows.work.places = transpose.places;
  rows.work.block_limit = static_cast<int>(work.block_limit);
  rows.work.blocks_of_head = static_cast<int>(turns.blocks);
  rows.work.head_tiles = static_cast<int>(turns.head_tiles);
  rows.work.head_items = static_cast<int>(turns.head_items);
  rows.work.entries = static_cast<int>(work.entries);
  transpose.indices = rows.work.blocks;
  transpose.heads = rows.attention.heads_kv;
  transpose.entries = rows.work.entries;
  transpose.limit = rows.work.block_limit;
  transpose.index_row = std::int64_t{transpose.heads} * transpose.entries;
  transpose.index_head = transpose.entries;

  ListedMaps maps = maps_of(attention, rows.attention, rows.gradients);
  maps.schedule.taken = reinterpret_cast<unsigned*>(lease.counter());
  AttentionParams of_sequences = rows.attention;  // whose batch entries are lists no more
  of_sequences.batch = of_sequences.tensors[0].rows;

  const std::int64_t heads = rows.attention.heads_kv, total_q = rows.attention.sequences.total_q;
  const auto put_rows = [&](ListedStep step, std::int64_t threads) {
    if (threads == 0) return;
    rows.step = step;
    void* parameters[] = {&rows};
    launch(kernel.ahead.handle(),
           {.grid = {static_cast<unsigned>((threads + listed_threads - 1) / listed_threads), 1, 1},
            .block = {listed_threads, 1, 1},
            .dependent = true},
           parameters, stream);
  };
  put_rows(ListedStep::rows, total_q * rows.attention.heads_q * listed_row_lanes);
  put_rows(ListedStep::zeros, heads * rows.attention.sequences.total_k);
  std::int64_t first = 0;
  do {  // once without lists, too: gradients are 0 then
    const std::int64_t count = std::min(work.lists - first, turns.at_once);
    const std::int64_t first_query = first * attention.list_queries;
    const std::int64_t queries =
        std::min(count * attention.list_queries, std::max<std::int64_t>(0, total_q - first_query));
    rows.work.first_query = static_cast<int>(first_query);
    rows.work.queries = static_cast<int>(queries);
    rows.work.is_first = first == 0;
    first += count;
    rows.work.is_last = first == work.lists;
    transpose.rows = rows.work.queries;
    transpose.room = transpose.rows * transpose.entries;
    put_rows(ListedStep::number, heads * std::max(queries * work.entries, work.block_limit));
    launch_transpose(transposing, transpose, stream);
    maps.work = rows.work;
    void* parameters[] = {&of_sequences, &rows.gradients, &maps};
    launch(kernel.kernel.handle(),
           {.grid = {static_cast<unsigned>(std::min<std::int64_t>(kernel.sm_count, heads * turns.head_items)),
                     1, 1},
            .block = {kernel.threads, 1, 1},
            .smem_bytes = kernel.smem_bytes,
            .dependent = true},
           parameters, stream);
    put_rows(ListedStep::queries, queries * heads * listed_gradients::sizes(attention).tile_floats /
                                      listed_tile_slots(attention.gqa_ratio) / 2);
  } while (first < work.lists);
}

}  // namespace jit
