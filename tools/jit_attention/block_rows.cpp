#include "block_rows.h"

#include <fmt/format.h>

#include "command.h"
#include "npy.h"

namespace jit::tool {
namespace {

struct Rows {
  std::string indptr_name, indices_name;
  Array indptr, indices;

  std::int64_t begin(std::int64_t at) const { return indptr.as<std::int64_t>()[at]; }
  std::int64_t block(std::int64_t at) const { return indices.as<std::int64_t>()[at]; }
};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw BadInput(fmt::format("--block-map: {} {}", name, why));
}

void check_shapes(const Rows& rows) {
  const std::size_t rank = rows.indptr.shape.size();
  if ((rank != 1 && rank != 3) || rows.indptr.shape.back() == 0) {
    refuse(rows.indptr_name,
           fmt::format("is {}; it must have where each row begins and the last one ends: its shape "
                       "(rows + 1) or (batch or 1, heads or 1, rows + 1)",
                       describe(rows.indptr)));
  }
  if (rows.indices.shape.size() != 1)
    refuse(rows.indices_name, fmt::format("is {}; it must have one dimension", describe(rows.indices)));
}

// Checks that row `at` of indptr has an end, and that its blocks ascend.
void check_row(const Rows& rows, std::int64_t at, std::int64_t columns) {
  const std::int64_t begin = rows.begin(at), end = rows.begin(at + 1), count = rows.indices.elements();
  for (const auto& [number, place] : {std::pair{begin, at}, {end, at + 1}}) {
    if (number < 0 || number > count) {
      refuse(rows.indptr_name, fmt::format("has {} at [{}]; it must be from 0 to {}, the number of indices",
                                           number, place, count));
    }
  }
  if (end < begin) {
    refuse(rows.indptr_name, fmt::format("falls from {} to {} at [{}]; a row must not end before it begins",
                                         begin, end, at + 1));
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t block = rows.block(i);
    if (block < 0 || block >= columns) {
      refuse(rows.indices_name,
             fmt::format("has {} at [{}]; it must be from 0 to {}, as there are {} blocks of keys", block, i,
                         columns - 1, columns));
    }
    if (i > begin && block <= rows.block(i - 1)) {
      refuse(rows.indices_name,
             fmt::format("has {} at [{}], after {}; blocks of a row must ascend, each named once", block, i,
                         rows.block(i - 1)));
    }
  }
}

}  // namespace

Array map_of_rows(const std::string& indptr, const std::string& indices, std::int64_t columns) {
  const auto whole = [](const std::string& path) { return convert(read_npy(path), DType::int64, path); };
  const Rows rows{indptr, indices, whole(indptr), whole(indices)};
  check_shapes(rows);
  const std::int64_t begins = rows.indptr.shape.back();
  std::vector<std::int64_t> shape = rows.indptr.shape;
  if (shape.size() == 1) shape.insert(shape.begin(), {1, 1});
  shape.back() = begins - 1;
  shape.push_back(columns);
  Array map = zeros(DType::uint8, shape);
  auto* row = map.as<std::uint8_t>();
  for (std::int64_t at = 0; at < rows.indptr.elements(); ++at) {
    if (at % begins == begins - 1) continue;  // end of a slice's last row
    check_row(rows, at, columns);
    for (std::int64_t i = rows.begin(at); i < rows.begin(at + 1); ++i) row[rows.block(i)] = 1;
    row += columns;
  }
  return map;
}

}  // namespace jit::tool
