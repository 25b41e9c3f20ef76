#include "generator/functors/row_keys.h"

#include <algorithm>
#include <limits>

#include "generator/functors/functor_node.h"
#include "generator/functors/interval_meaning.h"
#include "generator/functors/row_range.h"

namespace jit {
namespace {

constexpr std::int64_t open = std::numeric_limits<std::int64_t>::max();

// One end of the keys of a text's query: the outermost in any batch entry and head.
std::int64_t end_of(const std::optional<TextMeaning>& side, const TextInputs& inputs, bool is_begin) {
  if (!side) return is_begin ? -open : open;
  const Interval<long long> number = whole_number(*side, inputs);
  return is_begin ? number.low : number.high;
}

KeyRange keys_of_text(const TextRowRange& rows, const Extents& sizes, std::int64_t q) {
  const auto between = [](std::int64_t first, std::int64_t last) {
    return Interval<int>(static_cast<int>(first), static_cast<int>(last));
  };
  const TextInputs inputs = {between(q, q),
                             between(0, sizes.seqlen_kv - 1),
                             between(0, sizes.batch - 1),
                             between(0, sizes.heads_q - 1),
                             between(sizes.heads_q, sizes.heads_q),
                             between(sizes.seqlen_q, sizes.seqlen_q),
                             between(sizes.seqlen_kv, sizes.seqlen_kv)};
  return {end_of(rows.begin, inputs, true), end_of(rows.end, inputs, false)};
}

KeyRange keys_of(const MaskNode& node, const Extents& sizes, std::int64_t q) {
  if (node.text) return node.rows ? keys_of_text(*node.rows, sizes, q) : KeyRange{-open, open};
  if (node.row != nullptr) {
    if (node.a) return keys_of(*node.a, sizes, q);
    return node.row->row_keys ? node.row->row_keys({sizes, node.arguments, {}}, q) : KeyRange{-open, open};
  }
  if (node.combination == MaskOperator::negation) return {-open, open};
  const KeyRange a = keys_of(*node.a, sizes, q), b = keys_of(*node.b, sizes, q);
  if (node.combination == MaskOperator::conjunction)
    return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
  if (a.begin >= a.end) return b;
  if (b.begin >= b.end) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

std::optional<KeyRange> row_keys(const Mask& mask, const Extents& sizes, std::int64_t q) {
  const KeyRange keys = keys_of(node_of(mask), sizes, q);
  if (keys.begin == -open && keys.end == open) return {};
  const std::int64_t begin = std::clamp<std::int64_t>(keys.begin, 0, sizes.seqlen_kv);
  return KeyRange{begin, std::clamp(keys.end, begin, sizes.seqlen_kv)};
}

}  // namespace jit
