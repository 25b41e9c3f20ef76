#include "generator/operations/top_k/arguments.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "generator/operations/operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

const int* array_of(std::string_view name, const TensorView& tensor, CallSizes& sizes) {
  if (!tensor.is_present()) return nullptr;
  sizes.check({name, "rows", DType::int32}, tensor);
  check_dense_numbers(name, tensor);
  return static_cast<const int*>(tensor.data);
}

void check_table(const TopKSpec& spec, const TopKArguments& arguments, CallSizes& sizes) {
  const TensorView& table = arguments.page_table;
  if (spec.page_size == 0) {
    if (table.is_present()) refuse("page_table", "needs spec.page_size, which is 0");
    return;
  }
  sizes.check({"page_table", "entries, pages", DType::int32}, table);
  check_dense_last("page_table", table);
  const std::int64_t rows = sizes["rows"], entries = sizes["entries"];
  if (rows > 0 && (entries == 0 || rows % entries != 0))
    refuse("page_table",
           fmt::format("has {} entries for {} rows; rows must be a multiple of them, and each has as many",
                       entries, rows));
}

}  // namespace

bool fill_params(const TopKSpec& spec, const TopKArguments& arguments, TopKParams& params) {
  const auto& [scores, starts, ends, page_table, indices, counts] = arguments;
  CallSizes sizes;
  sizes.know("k", spec.k);
  sizes.check({"scores", "rows, heads, columns", spec.dtype}, scores);
  check_dense_last("scores", scores);
  params = {};
  params.starts = array_of("starts", starts, sizes);
  params.ends = array_of("ends", ends, sizes);
  check_table(spec, arguments, sizes);
  sizes.check({"indices", "rows, heads, k", DType::int32}, indices);
  check_dense_last("indices", indices);
  sizes.check({"counts", "rows, heads", DType::int32}, counts);
  for (const auto& [name, output] : {std::pair{"indices", &indices}, {"counts", &counts}}) {
    check_no_self_overlap(name, *output);
    for (const auto& [other, input] :
         {std::pair{"scores", &scores}, {"starts", &starts}, {"ends", &ends}, {"page_table", &page_table}})
      if (input->is_present()) check_no_overlap(name, *output, other, *input);
  }
  check_no_overlap("counts", counts, "indices", indices);
  const std::int64_t rows = sizes["rows"], heads = sizes["heads"];
  if (rows * heads > std::numeric_limits<std::int32_t>::max())
    refuse("scores", fmt::format("has {} rows in all heads; at most {} fit", rows * heads,
                                 std::numeric_limits<std::int32_t>::max()));
  params.scores = scores.data;
  params.score_row = stride_along(scores, 0);
  params.score_head = stride_along(scores, 1);
  params.indices = static_cast<int*>(indices.data);
  params.index_row = stride_along(indices, 0);
  params.index_head = stride_along(indices, 1);
  params.counts = static_cast<int*>(counts.data);
  params.count_row = stride_along(counts, 0);
  params.count_head = stride_along(counts, 1);
  params.rows = static_cast<int>(rows);
  params.heads = static_cast<int>(heads);
  params.columns = static_cast<int>(sizes["columns"]);
  params.rows_per_entry = 1;
  if (page_table.is_present()) {
    params.page_table = static_cast<const int*>(page_table.data);
    params.table_stride = stride_along(page_table, 0);
    params.pages = static_cast<int>(sizes["pages"]);
    if (rows > 0) params.rows_per_entry = static_cast<int>(rows / sizes["entries"]);
  }
  return rows * heads > 0;
}

}  // namespace jit
