#include "generator/kernels/tma_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "templates/tiles/bounded_box.cuh"

namespace jit {

std::string tma_rejection(const Case& problem, std::string_view name) {
  const int alignment = problem.spec.alignment;
  return alignment == 16
             ? ""
             : fmt::format("{} needs rows aligned to 16 bytes; spec.alignment is {}", name, alignment);
}

int box_rows(const AttentionSpec& spec, int tile_kv) {
  return box_rows(tile_kv, spec.sequences_kv == SequenceKind::paged ? spec.page_size : 0);
}

std::string box_rejection(const AttentionSpec& spec, int tile_kv, bool is_a_choice) {
  const int rows = box_rows(spec, tile_kv);
  if (rows >= std::min(least_box_rows, tile_kv)) return "";
  return fmt::format(
      "tile_kv = {} is copied in boxes of {} rows of a page, of {} each: {}page_size and tile_kv must have a "
      "common divisor of {} or more{}",
      tile_kv, rows, spec.page_size, is_a_choice ? "with copies = tma " : "", least_box_rows,
      is_a_choice ? "; copies = cp_async takes any" : "");
}

}  // namespace jit
