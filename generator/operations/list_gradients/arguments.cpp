#include "generator/operations/list_gradients/arguments.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "generator/functors/functor_tensors.h"
#include "generator/problem/functor_gradients.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - 65536;

std::int64_t columns_of(const AttentionSpec& spec) {
  return list_part_columns(spec.head_dim, spec.value_head_dim(), spec.values_in_keys);
}

// Element counts of the arrays in the workspace, in this order.
struct Memory {
  std::int64_t parts, sums, delta, blocks, starts, places, unordered, cursors;
};
Memory memory_of(const AttentionSpec& spec, const ListGradientsWork& work, const AttentionParams& params) {
  const std::int64_t heads = params.heads_kv, listed = work.at_once * work.entries * heads;
  const bool takes_turns = work.at_once < work.lists;
  return {.parts = listed * spec.list_block * columns_of(spec),
          .sums = takes_turns ? std::int64_t{params.sequences.total_k} * heads * columns_of(spec) : 0,
          .delta = std::int64_t{params.heads_q} * params.sequences.total_q,
          .blocks = listed,
          .starts = heads * (work.block_limit + 1),
          .places = listed,
          .unordered = listed,
          .cursors = heads * work.block_limit};
}

// Rounds up: arrays are aligned to 16 bytes.
std::int64_t room(std::int64_t numbers) { return (numbers + 3) / 4 * 4; }

}  // namespace

ListGradientsWork fill_params(const ListGradientsSpec& spec, const BackwardArguments& arguments,
                              ListGradientsParams& params) {
  const AttentionSpec& attention = spec.attention;
  params = {};
  fill_gradient_params(attention, functor_tensor_uses(attention), arguments, params.attention,
                       params.gradients);
  if (gradient_slots(params.gradients) != 0)
    refuse("d_tensors",
           "was given, and gradients from lists have none of tensors that scores read: leave it out");
  const AttentionParams& given = params.attention;
  ListGradientsWork work{.lists = given.batch, .entries = given.tensors[0].last_size};
  const std::int64_t sequences = given.tensors[0].rows;
  work.block_limit = given.sequences.total_k / attention.list_block + sequences + 2;
  const std::int64_t part_bytes = given.heads_kv * work.entries * attention.list_block *
                                  columns_of(attention) * std::int64_t{sizeof(float)};
  work.at_once = std::min(work.lists,
                          std::max<std::int64_t>(1, spec.part_bytes / std::max<std::int64_t>(1, part_bytes)));
  work.at_once =
      std::min(work.at_once, std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, work.entries)));
  if (given.heads_kv > max_grid_yz)
    refuse("k",
           fmt::format("has {} heads; gradients from lists have at most {}", given.heads_kv, max_grid_yz));
  const std::int64_t pieces = std::int64_t{given.sequences.total_k} * given.heads_kv * columns_of(attention) /
                              4 / list_gradient_threads;
  if (pieces > most || work.at_once * given.heads_kv > most)
    refuse("k", fmt::format("has {} rows of {} heads; that is more than gradients from lists count",
                            given.sequences.total_k, given.heads_kv));
  const Memory memory = memory_of(attention, work, given);
  for (const std::int64_t numbers : {memory.parts, memory.sums, memory.delta, memory.blocks, memory.starts,
                                     memory.places, memory.unordered, memory.cursors})
    work.bytes += static_cast<std::size_t>(room(numbers)) * sizeof(float);
  return work;
}

void place_memory(const ListGradientsSpec& spec, const ListGradientsWork& work, std::byte* memory,
                  ListGradientsParams& params, TransposeListsParams& transpose) {
  const Memory sizes = memory_of(spec.attention, work, params.attention);
  const auto next = [&]<class T>(T*& array, std::int64_t numbers) {
    array = reinterpret_cast<T*>(memory);
    memory += static_cast<std::ptrdiff_t>(room(numbers)) * static_cast<std::ptrdiff_t>(sizeof(float));
  };
  int* starts = nullptr;
  int* places = nullptr;
  next(params.parts, sizes.parts);
  next(params.sums, sizes.sums);
  next(params.gradients.delta, sizes.delta);
  next(params.blocks, sizes.blocks);
  next(starts, sizes.starts);
  next(places, sizes.places);
  next(transpose.unordered, sizes.unordered);
  next(transpose.cursors, sizes.cursors);
  params.starts = starts;
  params.places = places;
  params.block_limit = static_cast<int>(work.block_limit);
  transpose.indices = params.blocks;
  transpose.starts = starts;
  transpose.places = places;
  transpose.heads = params.attention.heads_kv;
  transpose.entries = static_cast<int>(work.entries);
  transpose.limit = params.block_limit;
  transpose.index_row = std::int64_t{transpose.heads} * transpose.entries;
  transpose.index_head = transpose.entries;
}

}  // namespace jit
