#include "generator/operations/key_union/arguments.h"

#include <algorithm>
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

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

void check_outputs(const KeyUnionArguments& arguments) {
  const std::array outputs = {std::pair{"lists", &arguments.lists}, std::pair{"members", &arguments.members},
                              std::pair{"list_counts", &arguments.list_counts}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, output] = outputs[i];
    check_dense(name, *output);
    check_no_overlap(name, *output, "indices", arguments.indices);
    if (arguments.counts.is_present()) check_no_overlap(name, *output, "counts", arguments.counts);
    for (std::size_t other = 0; other < i; ++other)
      check_no_overlap(name, *output, outputs[other].first, *outputs[other].second);
  }
}

}  // namespace

unsigned fill_params(const KeyUnionSpec& spec, const KeyUnionArguments& arguments, KeyUnionParams& params) {
  CallSizes sizes;
  sizes.check({"indices", "rows, heads, entries", DType::int32}, arguments.indices);
  const std::int64_t rows = sizes["rows"], heads = sizes["heads"], entries = sizes["entries"];
  if (arguments.limit < 0 || arguments.limit > most)
    refuse("limit", fmt::format("is {}; it must be from 0 to {}", arguments.limit, most));
  sizes.know("lists", (rows + spec.queries - 1) / spec.queries);
  if (arguments.counts.is_present()) sizes.check({"counts", "rows, heads", DType::int32}, arguments.counts);
  sizes.check({"lists", "lists, heads, room", DType::int32}, arguments.lists);
  sizes.check({"members", "lists, heads, room", DType::int32}, arguments.members);
  sizes.check({"list_counts", "lists, heads", DType::int32}, arguments.list_counts);
  check_dense_last("indices", arguments.indices);
  const std::int64_t least = std::min(arguments.limit, spec.queries * entries);
  if (sizes["room"] < least)
    refuse("lists", fmt::format("has room for {} entries; a union may have {}", sizes["room"], least));
  const std::int64_t blocks = sizes["lists"] * heads;
  for (const auto& [name, size] : {std::pair{"indices", rows}, std::pair{"indices", entries},
                                   std::pair{"indices", blocks}, std::pair{"lists", sizes["room"]}}) {
    if (size > most - spec.queries)
      refuse(name, fmt::format("has a size of {}; at most {} fit", size, most - spec.queries));
  }
  check_outputs(arguments);
  const auto data = [](const TensorView& tensor) { return static_cast<int*>(tensor.data); };
  params = {.indices = data(arguments.indices),
            .counts = data(arguments.counts),
            .lists = data(arguments.lists),
            .members = reinterpret_cast<unsigned*>(data(arguments.members)),
            .list_counts = data(arguments.list_counts),
            .index_row = arguments.indices.strides[0],
            .index_head = arguments.indices.strides[1],
            .count_row = arguments.counts.strides[0],
            .count_head = arguments.counts.strides[1],
            .rows = static_cast<int>(rows),
            .heads = static_cast<int>(heads),
            .entries = static_cast<int>(entries),
            .room = static_cast<int>(sizes["room"]),
            .limit = static_cast<int>(arguments.limit)};
  return static_cast<unsigned>(blocks);
}

}  // namespace jit
