#include "generator/operations/transpose_lists/arguments.h"

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "generator/operations/operands.h"
#include "generator/tensors/overlap.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - transpose_threads;

void check_outputs(const TransposeListsArguments& arguments) {
  const std::array outputs = {std::pair{"starts", &arguments.starts}, std::pair{"places", &arguments.places},
                              std::pair{"scratch", &arguments.scratch}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, output] = outputs[i];
    if (!output->is_present()) continue;
    check_dense(name, *output);
    check_no_overlap(name, *output, "indices", arguments.indices);
    if (arguments.counts.is_present()) check_no_overlap(name, *output, "counts", arguments.counts);
    for (std::size_t other = 0; other < i; ++other)
      check_no_overlap(name, *output, outputs[other].first, *outputs[other].second);
  }
}

}  // namespace

std::size_t fill_params(const TransposeListsArguments& arguments, TransposeListsParams& params) {
  CallSizes sizes;
  sizes.check({"indices", "rows, heads, entries", DType::int32}, arguments.indices);
  const std::int64_t rows = sizes["rows"], heads = sizes["heads"], entries = sizes["entries"];
  if (arguments.limit < 0 || arguments.limit > most)
    refuse("limit", fmt::format("is {}; it must be from 0 to {}", arguments.limit, most));
  constexpr std::int64_t most_heads = 65535;
  if (heads > most_heads) refuse("indices", fmt::format("has {} heads; at most {} fit", heads, most_heads));
  if (entries > 0 && rows > most / entries)
    refuse("indices", fmt::format("has {} · {} entries of a head; at most {} fit", rows, entries, most));
  if (arguments.counts.is_present()) sizes.check({"counts", "rows, heads", DType::int32}, arguments.counts);
  sizes.know("limit + 1", arguments.limit + 1);
  sizes.check({"starts", "heads, limit + 1", DType::int32}, arguments.starts);
  sizes.check({"places", "heads, room", DType::int32}, arguments.places);
  const std::int64_t room = sizes["room"];
  if (room < rows * entries)
    refuse("places", fmt::format("has room for {} places; lists may have {}", room, rows * entries));
  if (room > most) refuse("places", fmt::format("has room for {} places; at most {} fit", room, most));
  if (arguments.scratch.is_present()) {
    sizes.know("room + limit", room + arguments.limit);
    sizes.check({"scratch", "heads, room + limit", DType::int32}, arguments.scratch);
  }
  check_dense_last("indices", arguments.indices);
  check_outputs(arguments);
  const auto data = [](const TensorView& tensor) { return static_cast<int*>(tensor.data); };
  params = {.indices = data(arguments.indices),
            .counts = data(arguments.counts),
            .starts = data(arguments.starts),
            .places = data(arguments.places),
            .unordered = nullptr,
            .cursors = nullptr,
            .index_row = arguments.indices.strides[0],
            .index_head = arguments.indices.strides[1],
            .count_row = arguments.counts.strides[0],
            .count_head = arguments.counts.strides[1],
            .rows = static_cast<int>(rows),
            .heads = static_cast<int>(heads),
            .entries = static_cast<int>(entries),
            .room = static_cast<int>(room),
            .limit = static_cast<int>(arguments.limit),
            .step = TransposeStep::clear};
  if (!arguments.scratch.is_present())
    return static_cast<std::size_t>(heads * (room + arguments.limit)) * sizeof(int);
  place_scratch(params, arguments.scratch.data);
  return 0;
}

void place_scratch(TransposeListsParams& params, void* memory) {
  params.unordered = static_cast<int*>(memory);
  params.cursors = params.unordered + static_cast<std::ptrdiff_t>(params.heads) * params.room;
}

}  // namespace jit
