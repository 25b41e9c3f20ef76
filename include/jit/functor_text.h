/// @file
/// Masks, scores and outputs that a user writes as C++ text.
///
/// @code
/// const jit::FunctorTensorSpec gate = jit::parse_functor_tensor("gate", "fp16 as_row");
/// assert(gate.access == jit::TensorAccess::as_row && jit::kind_text(gate) == "fp16 as_row");
/// const jit::FunctorText text{.name = "gated", .body = "return value * sigmoid(gate);", .tensors = {gate}};
/// assert(text.tensors.front() == gate && text.classify.empty());
/// @endcode
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <jit/tensor.h>

namespace jit {

/// The form in which a text sees a tensor.
enum class TensorAccess {
  pointer,  ///< a pointer to const elements (`to_float(x)` converts bf16 and fp16), of a dense tensor
  as_o,     ///< only in output functors: the element at the position in o; o's shape, where sizes may be 1
  as_row,   ///< only in output functors: the element of the token and head; as as_o, without head_dim
};

/// A tensor that a functor reads. Each call passes a tensor of that name.
struct FunctorTensorSpec {
  std::string name;           ///< the identifier in the text, and the tensor's name at a call
  DType dtype = DType::fp32;  ///< element type
  TensorAccess access = TensorAccess::pointer;  ///< what the identifier stands for

  bool operator==(const FunctorTensorSpec&) const = default;  ///< member by member
};

/// "bf16", "bf16 as_o": the type of a tensor and, unless it is a pointer, what the text sees of it.
std::string kind_text(const FunctorTensorSpec& tensor);
/// A tensor of a kind that kind_text writes. Throws Error invalid_argument for another text.
FunctorTensorSpec parse_functor_tensor(std::string name, std::string_view kind);

/// A constant that is compiled into the kernel.
using FunctorConstant = std::variant<bool, std::int64_t, double>;

/// A functor as text: the body of a C++ function. Names that the text may use:
///   q, k                        positions of query and key
///   b, h                        batch entry and query head
///   seqlen_q, seqlen_kv, heads_q
///   score                       in score functors: softmax_scale · q·k
///   value, d                    in output functors, which lack k and seqlen_kv: the element of o in fp32, 0 in a row
///                               without keys, and its column; q is the row within the sequence's o
///   sigmoid(x)                  1 / (1 + e^−x)
///   INFINITY                    as in C: a score of -INFINITY drops a key as a mask does
///   the names of `constants` and `tensors`, which are local variables
/// Errors in the text are reported at `name`:line. A path without `return`, or a variable that is read before
/// it is set, is an error; other warnings of the compiler go to the observer.
struct FunctorText {
  std::string name;  ///< of the functor, used in messages and kernel names: letters, digits, '_', '-', '.'
  std::string body;  ///< e.g. "return q >= k && ids[q] == ids[k];", at most 64 KiB, as the bodies below
  /// Optional, masks only: the body of a function of q_begin, q_end, k_begin, k_end (half-open ranges of a tile)
  /// returning TileClass::empty, TileClass::full or TileClass::partial, the same in every thread. If it is empty, the
  /// library derives the classes from the body by bounds of q and k (docs/masks.md). If it cannot, every tile is
  /// computed with the mask, which is slower, and an Event says why.
  std::string classify = {};
  /// Optional, scores only: the body of a function with the same names that returns the derivative of what `body`
  /// returns with respect to `score`. Gradients use it, and `body` may compute with floats or call functions that the
  /// library cannot differentiate. Of a tensor `table` of fp32, bf16 or fp16 it says `d_table[i] += x;`, where x is
  /// the derivative with respect to element i: once for each read, several of one element add up. `d_table` is moved
  /// as `table` is, `(d_table + 16 * h)[i]` or `*d_table`. Tensors that it does not name have no gradient. If it is
  /// empty, the library differentiates `body` by compiling it with a number type that carries a derivative: it
  /// declares with `auto` every variable that depends on `score`, or on a tensor whose gradient is wanted.
  std::string derivative = {};
  std::map<std::string, FunctorConstant> constants = {};  ///< compiled into the kernel, by name
  std::vector<FunctorTensorSpec> tensors = {};            ///< passed to each call

  bool operator==(const FunctorText&) const = default;  ///< member by member
};

}  // namespace jit
