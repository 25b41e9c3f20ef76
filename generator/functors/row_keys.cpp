#include "generator/functors/row_keys.h"

#include <algorithm>
#include <cstdlib>

#include "generator/functors/functor_node.h"
#include "generator/functors/interval_meaning.h"
#include "generator/functors/row_range.h"

namespace jit {
namespace {

constexpr std::int64_t open = std::int64_t{1} << 60;  // far beyond all keys, but sums do not overflow

// One end of the key ranges of consecutive queries.
struct MovingEnd {
  std::int64_t at, step;
};

// The larger or smaller of two ends; cuts `rows` to queries for which it stays so.
MovingEnd outer(const MovingEnd& a, const MovingEnd& b, bool takes_larger, std::int64_t& rows) {
  const bool is_ahead = takes_larger ? a.at > b.at || (a.at == b.at && a.step >= b.step)
                                     : a.at < b.at || (a.at == b.at && a.step <= b.step);
  const MovingEnd& taken = is_ahead ? a : b;
  const MovingEnd& other = is_ahead ? b : a;
  const std::int64_t closing = takes_larger ? other.step - taken.step : taken.step - other.step;
  if (closing > 0) rows = std::min(rows, std::abs(taken.at - other.at) / closing + 1);
  return taken;
}

struct MovingKeys {
  MovingEnd begin, end;
  std::int64_t rows = open;

  // Whether no query sees a key; cuts `rows` to queries with the same answer.
  bool are_empty() {
    const std::int64_t count = end.at - begin.at, step = end.step - begin.step;
    if (count <= 0) {
      if (step > 0) rows = std::min(rows, -count / step + 1);
      return true;
    }
    if (step < 0) rows = std::min(rows, (count - 1) / -step + 1);
    return false;
  }
};

// One end of the keys of a text's query: the outermost over batch entries and heads.
std::int64_t end_of(const std::optional<TextMeaning>& side, const TextInputs& inputs, bool is_begin) {
  if (!side) return is_begin ? -open : open;
  const Interval<long long> number = whole_number(*side, inputs);
  return std::clamp<std::int64_t>(is_begin ? number.low : number.high, 1 - open, open - 1);
}

MovingKeys keys_of_text(const TextRowRange& rows, const Extents& sizes, std::int64_t q) {
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
  return {{end_of(rows.begin, inputs, true), 0}, {end_of(rows.end, inputs, false), 0}, 1};
}

constexpr MovingKeys all_keys{{-open, 0}, {open, 0}};

MovingKeys keys_of_row(const MaskRow& row, const HostFunctor& functor, std::int64_t q) {
  if (!row.row_keys) return all_keys;
  const KeyRange here = row.row_keys(functor, q), next = row.row_keys(functor, q + 1);
  return {{here.begin, next.begin - here.begin}, {here.end, next.end - here.end}};
}

MovingKeys keys_of(const MaskNode& node, const Extents& sizes, std::int64_t q) {
  if (node.text) return node.rows ? keys_of_text(*node.rows, sizes, q) : all_keys;
  // The inner mask does not limit the keys whose bits are known.
  if (node.row != nullptr && node.row->knows_scores) return all_keys;
  if (node.row != nullptr)
    return node.a ? keys_of(*node.a, sizes, q) : keys_of_row(*node.row, {sizes, node.arguments, {}}, q);
  if (node.combination == MaskOperator::negation) return all_keys;
  MovingKeys a = keys_of(*node.a, sizes, q), b = keys_of(*node.b, sizes, q);
  const bool is_both = node.combination == MaskOperator::conjunction;
  if (!is_both) {
    const bool a_is_empty = a.are_empty(), b_is_empty = b.are_empty();
    a.rows = b.rows = std::min(a.rows, b.rows);
    if (a_is_empty) return b;
    if (b_is_empty) return a;
  }
  std::int64_t rows = std::min(a.rows, b.rows);
  const MovingEnd begin = outer(a.begin, b.begin, is_both, rows), end = outer(a.end, b.end, !is_both, rows);
  return {begin, end, rows};
}

}  // namespace

std::optional<KeysOfRows> row_keys_from(const Mask& mask, const Extents& sizes, std::int64_t q) {
  MovingKeys keys = keys_of(node_of(mask), sizes, q);
  if (keys.begin.at == -open && keys.end.at == open) return {};
  std::int64_t rows = keys.rows;
  const MovingEnd first{0, 0}, last{sizes.seqlen_kv, 0};
  const auto cut = [&](const MovingEnd& end) {
    return outer(outer(end, first, true, rows), last, false, rows);
  };
  keys = {cut(keys.begin), cut(keys.end), open};
  if (keys.are_empty()) keys.end = keys.begin;
  return KeysOfRows{{keys.begin.at, keys.end.at}, keys.begin.step, keys.end.step, std::min(rows, keys.rows)};
}

std::optional<KeyRange> row_keys(const Mask& mask, const Extents& sizes, std::int64_t q) {
  const std::optional<KeysOfRows> rows = row_keys_from(mask, sizes, q);
  if (!rows) return {};
  return rows->keys;
}

}  // namespace jit
