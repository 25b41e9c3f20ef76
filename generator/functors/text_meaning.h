// The meaning of a functor's text, as far as it can be followed without running it: a list of nodes, each of which
// makes one number of those before it. Branches are nodes, too, so that the list is all: it has no statements and no
// variables.
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

/// Types of numbers that texts are followed with. Operands of arithmetic are promoted to whole32 at least.
enum class NumberType { truth, whole32, natural32, whole64, real32, real64 };
/// float or double.
inline bool is_real(NumberType type) { return type == NumberType::real32 || type == NumberType::real64; }

/// How C++ and templates/problem/interval.cuh write it.
std::string_view to_string(NumberType type);

enum class TextOperator {
  constant,
  input,     ///< one of TextInput
  load,      ///< an element of a tensor: operands are its index, and whether the text reads it
  score,     ///< of a score's text: the score that it is given
  is_asked,  ///< of a part of a mask's text: whether the text reads what the part reads
  unknown,   ///< any number of the type, or none: what a function returns that is not looked into
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
  choose,  ///< operands are a condition, and what it chooses of
  least,
  most,
  magnitude,
};

/// Numbers that a text knows from the start, in the order of text_inputs().
enum class TextInput { q, k, b, h, heads_q, seqlen_q, seqlen_kv };
/// Their names.
const std::array<std::string_view, 7>& text_inputs();
/// The longest sequence of queries or of keys that arguments may have. Positions are 32-bit in kernels, and run past
/// the end by at most a tile of queries and a tile of keys.
inline constexpr std::int64_t max_seqlen = std::numeric_limits<std::int32_t>::max() - 4096;

struct TextNode {
  TextOperator op = TextOperator::constant;
  NumberType type = NumberType::whole32;       ///< of the result
  std::array<int, 3> operands = {-1, -1, -1};  ///< places in the list
  std::variant<std::int64_t, double> number =
      std::int64_t{0};  ///< of a constant: double where the type is real
  int which = 0;        ///< of an input its TextInput, of a load the place of its tensor in the text
};

/// The last node is the result.
struct TextMeaning {
  std::vector<TextNode> nodes;
};

/// Whether the result depends on it.
bool reads(const TextMeaning& meaning, TextInput input);

/// Why a text cannot be followed: it runs as it is, but nothing is known of it beforehand.
struct NotFollowed {
  int line = 0;        ///< of the body, counted from 1
  std::string reason;  ///< e.g. "loops are not followed"
};

/// The truth that the body of a mask returns. Bodies that C++ would refuse may be followed, too: the compiler
/// speaks of those.
std::variant<TextMeaning, NotFollowed> mask_meaning(const FunctorText& text);

/// The number that the body of a score returns, of type real32.
std::variant<TextMeaning, NotFollowed> score_meaning(const FunctorText& text);

}  // namespace jit
