// The meaning of a functor's text, as far as analysis can follow it: a list of nodes, each of which computes
// a number from previous ones. Branches are nodes, too, so there are no statements or variables.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <jit/functor_text.h>

namespace jit {

/// Number types in the analysis of texts. Arithmetic promotes operands to at least whole32.
enum class NumberType { truth, whole32, natural32, whole64, real32, real64 };
/// float or double.
inline bool is_real(NumberType type) { return type == NumberType::real32 || type == NumberType::real64; }

/// The type's name in C++ and in templates/problem/interval.cuh.
std::string_view to_string(NumberType type);

enum class TextOperator {
  constant,
  input,     ///< a TextInput
  load,      ///< an element of a tensor: operands are its index, and whether the text reads it
  score,     ///< the argument of a score's text
  is_asked,  ///< in a part of a mask: whether the text reads what the part reads
  unknown,   ///< any number of the type or NaN, such as the result of an unanalyzed function
  convert,
  negative,
  bit_not,
  logical_not,
  add,
  subtract,
  multiply,
  divide,
  remainder,
  shift_left,
  shift_right,
  bit_and,
  bit_or,
  bit_xor,
  logical_and,
  logical_or,
  less,
  less_equal,
  equal,
  not_equal,
  choose,  ///< operands: a condition and two alternatives
  least,
  most,
  magnitude,
};

/// Numbers that every text has, in the order of text_inputs().
enum class TextInput { q, k, b, h, heads_q, seqlen_q, seqlen_kv };
/// Names of the inputs.
const std::array<std::string_view, 7>& text_inputs();
/// The longest supported sequence of queries or keys. Positions are 32-bit in kernels, and exceed the end by
/// at most a tile of queries and a tile of keys.
inline constexpr std::int64_t max_seqlen = std::numeric_limits<std::int32_t>::max() - 4096;

struct TextNode {
  TextOperator op = TextOperator::constant;
  NumberType type = NumberType::whole32;       ///< of the result
  std::array<int, 3> operands = {-1, -1, -1};  ///< indices in the list
  std::variant<std::int64_t, double> number =
      std::int64_t{0};  ///< of a constant; a double if its type is a real one
  int which = 0;        ///< an input's TextInput, or the index of a load's tensor in the text
};

/// A list of nodes, of which the last is the result.
struct TextMeaning {
  std::vector<TextNode> nodes;
};

/// Whether the result depends on an input.
bool reads(const TextMeaning& meaning, TextInput input);

/// Why a text cannot be analyzed: it runs unchanged, without optimizations.
struct NotFollowed {
  int line = 0;        ///< of the body, counted from 1
  std::string reason;  ///< e.g. "loops are not followed"
};

/// The condition that a mask's body returns. Also accepts bodies that C++ rejects; the compiler reports
/// those.
std::variant<TextMeaning, NotFollowed> mask_meaning(const FunctorText& text);

/// The number that a score's body returns, of type real32.
std::variant<TextMeaning, NotFollowed> score_meaning(const FunctorText& text);

}  // namespace jit
