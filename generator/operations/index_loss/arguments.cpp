#include "generator/operations/index_loss/arguments.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "generator/operations/operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - 65536;

// Element counts of the arrays in the workspace, in this order.
struct Memory {
  std::int64_t parts, sums, scores, starts, places, unordered, cursors;
};
Memory memory_of(const IndexLossSpec& spec, const IndexLossWork& work, const IndexLossParams& params) {
  const std::int64_t listed = work.at_once * params.entries, keys = params.keys;
  if (!work.has_gradients)
    return {.parts = 0, .sums = 0, .scores = listed, .starts = 0, .places = 0, .unordered = 0, .cursors = 0};
  return {.parts = listed * spec.head_dim,
          .sums = work.at_once < work.tokens ? keys * spec.head_dim : 0,
          .scores = listed,
          .starts = keys + 1,
          .places = listed,
          .unordered = listed,
          .cursors = keys};
}

// Rounds up: arrays are aligned to 16 bytes.
std::int64_t room(std::int64_t numbers) { return (numbers + 3) / 4 * 4; }

using Named = std::pair<std::string_view, const TensorView*>;

void check_overlaps(const IndexLossArguments& given) {
  const std::array inputs = {Named{"q", &given.q},
                             Named{"k", &given.k},
                             Named{"weights", &given.weights},
                             Named{"indices", &given.indices},
                             Named{"counts", &given.counts},
                             Named{"targets", &given.targets},
                             Named{"d_loss", &given.d_loss}};
  const std::array outputs = {Named{"loss", &given.loss}, Named{"dq", &given.dq}, Named{"dk", &given.dk},
                              Named{"d_weights", &given.d_weights}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, output] = outputs[i];
    if (!output->is_present()) continue;
    check_no_self_overlap(name, *output);
    for (const auto& [other, input] : inputs)
      if (input->is_present()) check_no_overlap(name, *output, other, *input);
    for (std::size_t j = 0; j < i; ++j)
      if (outputs[j].second->is_present())
        check_no_overlap(name, *output, outputs[j].first, *outputs[j].second);
  }
}

void check_group(const IndexLossArguments& given) {
  const std::array group = {Named{"d_loss", &given.d_loss}, Named{"dq", &given.dq}, Named{"dk", &given.dk},
                            Named{"d_weights", &given.d_weights}};
  for (const auto& [name, tensor] : group)
    if (tensor->is_present() != given.d_loss.is_present())
      refuse(tensor->is_present() ? "d_loss" : name,
             "is missing; d_loss, dq, dk and d_weights are given together, or none of them");
}

}  // namespace

IndexLossWork fill_params(const IndexLossSpec& spec, const IndexLossArguments& arguments,
                          IndexLossParams& params) {
  const auto& [q, k, weights, indices, counts, targets, loss, d_loss, dq, dk, d_weights] = arguments;
  constexpr int row_alignment = 16;
  check_group(arguments);
  CallSizes sizes;
  sizes.know("heads", spec.heads);
  sizes.know("head_dim", spec.head_dim);
  sizes.know("lists", 1);
  sizes.check({"q", "tokens, heads, head_dim", spec.dtype, row_alignment}, q);
  sizes.check({"k", "keys, head_dim", spec.dtype, row_alignment}, k);
  sizes.check({"weights", "tokens, heads", DType::fp32}, weights);
  sizes.check({"indices", "tokens, lists, entries", DType::int32}, indices);
  if (counts.is_present()) sizes.check({"counts", "tokens, lists", DType::int32}, counts);
  sizes.check({"targets", "tokens, lists, entries", DType::fp32}, targets);
  check_dense_last("indices", indices);
  check_dense_last("targets", targets);
  if (loss.is_present()) sizes.check({"loss", "tokens", DType::fp32}, loss);
  if (d_loss.is_present()) {
    sizes.check({"d_loss", "tokens", DType::fp32}, d_loss);
    sizes.check({"dq", "tokens, heads, head_dim", spec.dtype, row_alignment}, dq);
    sizes.check({"dk", "keys, head_dim", spec.dtype, row_alignment}, dk);
    sizes.check({"d_weights", "tokens, heads", DType::fp32}, d_weights);
  }
  check_overlaps(arguments);
  const std::int64_t tokens = sizes["tokens"], entries = sizes["entries"], keys = sizes["keys"];
  if (tokens > most) refuse("q", fmt::format("has {} tokens; at most {} fit", tokens, most));
  if (keys > most / (spec.head_dim / 4) * index_loss_threads || keys > most)
    refuse("k", fmt::format("has {} keys, which are too many", keys));
  if (entries > most) refuse("indices", fmt::format("has {} entries; at most {} fit", entries, most));
  const auto along = [](const TensorView& tensor, int dimension) {
    return tensor.is_present() ? stride_along(tensor, dimension) : 0;
  };
  params = {.q = q.data,
            .q_token = along(q, 0),
            .q_head = along(q, 1),
            .k = k.data,
            .k_row = along(k, 0),
            .weights = static_cast<const float*>(weights.data),
            .weight_token = along(weights, 0),
            .weight_head = along(weights, 1),
            .lists = static_cast<const int*>(indices.data),
            .list_token = along(indices, 0),
            .counts = static_cast<const int*>(counts.data),
            .count_token = along(counts, 0),
            .targets = static_cast<const float*>(targets.data),
            .target_token = along(targets, 0),
            .loss = static_cast<float*>(loss.data),
            .loss_token = along(loss, 0),
            .d_loss = static_cast<const float*>(d_loss.data),
            .d_loss_token = along(d_loss, 0),
            .dq = dq.data,
            .dq_token = along(dq, 0),
            .dq_head = along(dq, 1),
            .dk = dk.data,
            .dk_row = along(dk, 0),
            .d_weights = static_cast<float*>(d_weights.data),
            .d_weight_token = along(d_weights, 0),
            .d_weight_head = along(d_weights, 1),
            .scores = nullptr,
            .parts = nullptr,
            .starts = nullptr,
            .places = nullptr,
            .sums = nullptr,
            .keys = static_cast<int>(keys),
            .entries = static_cast<int>(entries),
            .first_list = 0,
            .is_first = true,
            .is_last = true,
            .step = IndexLossStep::loss};
  IndexLossWork work{.tokens = tokens, .has_loss = loss.is_present(), .has_gradients = d_loss.is_present()};
  const std::int64_t list_bytes =
      std::max<std::int64_t>(1, entries) * 4 * (work.has_gradients ? spec.head_dim : 1);
  const std::int64_t fit = std::min(spec.part_bytes / list_bytes, most / std::max<std::int64_t>(1, entries));
  work.at_once = std::min(tokens, std::max<std::int64_t>(1, fit));
  const Memory memory = memory_of(spec, work, params);
  for (const std::int64_t numbers : {memory.parts, memory.sums, memory.scores, memory.starts, memory.places,
                                     memory.unordered, memory.cursors})
    work.bytes += static_cast<std::size_t>(room(numbers)) * sizeof(float);
  return work;
}

void place_memory(const IndexLossSpec& spec, const IndexLossWork& work, std::byte* memory,
                  IndexLossParams& params, TransposeListsParams& transpose) {
  const Memory sizes = memory_of(spec, work, params);
  const auto next = [&]<class T>(T*& array, std::int64_t numbers) {
    array = reinterpret_cast<T*>(memory);
    memory += static_cast<std::ptrdiff_t>(room(numbers)) * static_cast<std::ptrdiff_t>(sizeof(float));
  };
  next(params.parts, sizes.parts);
  next(params.sums, sizes.sums);
  next(params.scores, sizes.scores);
  next(transpose.starts, sizes.starts);
  next(transpose.places, sizes.places);
  next(transpose.unordered, sizes.unordered);
  next(transpose.cursors, sizes.cursors);
  params.starts = transpose.starts;
  params.places = transpose.places;
  transpose.heads = 1;
  transpose.entries = params.entries;
  transpose.limit = params.keys;
  transpose.index_row = params.list_token;
  transpose.index_head = 0;
  transpose.count_row = params.count_token;
  transpose.count_head = 0;
}

}  // namespace jit
