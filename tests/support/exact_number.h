// Evaluates the meaning of a text a second time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "generator/functors/text_meaning.h"
#include "tests/support/random_mask_text.h"

namespace jit::testing {

/// The value of a meaning without real numbers at a place, by rules of its own: fails where a number leaves
/// 64 bits, or where an element beyond the 1,024 of random texts is read.
class Number {
 public:
  Number(const TextMeaning& meaning, const TextPlace& place, bool is_asked = true)
      : place_(place), is_asked_(is_asked) {
    for (const TextNode& node : meaning.nodes) values_.push_back(value(node));
  }
  std::int64_t result() const { return values_.back(); }

 private:
  std::int64_t value(const TextNode& node) const {
    const std::int64_t exact = wide_value(node);
    if (node.type == NumberType::whole32) return static_cast<std::int32_t>(exact);
    return node.type == NumberType::natural32 ? static_cast<std::uint32_t>(exact) : exact;
  }

  std::int64_t wide_value(const TextNode& node) const {
    const auto at = [&](std::size_t i) {
      return node.operands[i] < 0 ? 0 : values_[static_cast<std::size_t>(node.operands[i])];
    };
    const std::int64_t x = at(0), y = at(1);
    std::int64_t result = 0;
    switch (node.op) {
      case TextOperator::constant:
        return std::get<std::int64_t>(node.number);
      case TextOperator::input:
        return place_[static_cast<std::size_t>(node.which)];
      case TextOperator::load:
        EXPECT_TRUE(y == 0 || (x >= 0 && x < 1024));
        return y == 0 ? 12345 : random_text_id(x);
      case TextOperator::is_asked:
        return is_asked_;
      case TextOperator::convert:
        return node.type == NumberType::truth ? x != 0 : x;
      case TextOperator::negative:
        EXPECT_FALSE(__builtin_sub_overflow(std::int64_t{0}, x, &result));
        return result;
      case TextOperator::add:
        EXPECT_FALSE(__builtin_add_overflow(x, y, &result));
        return result;
      case TextOperator::subtract:
        EXPECT_FALSE(__builtin_sub_overflow(x, y, &result));
        return result;
      case TextOperator::multiply:
        EXPECT_FALSE(__builtin_mul_overflow(x, y, &result));
        return result;
      case TextOperator::divide:
        return y == 0 ? 0 : x / y;
      case TextOperator::remainder:
        return y == 0 ? 0 : x % y;
      case TextOperator::shift_left:
        return x * (std::int64_t{1} << y);
      case TextOperator::shift_right:
        return x >> y;
      case TextOperator::bit_not:
        return ~x;
      case TextOperator::bit_and:
        return x & y;
      case TextOperator::bit_or:
        return x | y;
      case TextOperator::bit_xor:
        return x ^ y;
      case TextOperator::logical_not:
        return x == 0;
      case TextOperator::logical_and:
        return x != 0 && y != 0;
      case TextOperator::logical_or:
        return x != 0 || y != 0;
      case TextOperator::less:
        return x < y;
      case TextOperator::less_equal:
        return x <= y;
      case TextOperator::equal:
        return x == y;
      case TextOperator::not_equal:
        return x != y;
      case TextOperator::choose:
        return x != 0 ? y : at(2);
      case TextOperator::least:
        return std::min(x, y);
      case TextOperator::most:
        return std::max(x, y);
      case TextOperator::magnitude:
        return std::abs(x);
      case TextOperator::score:
      case TextOperator::unknown:
        break;
    }
    ADD_FAILURE() << "no number without a point";
    return 0;
  }

  const TextPlace& place_;
  bool is_asked_;
  std::vector<std::int64_t> values_;
};

}  // namespace jit::testing
