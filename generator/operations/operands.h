// The tensors of an operation's call: each is checked by itself, and its sizes against those of the others.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <jit/tensor.h>

#include "templates/base/params.cuh"

namespace jit {

/// Names of a tensor's dimensions, written as "tokens, heads_kv, head_dim".
class DimNames {
 public:
  consteval DimNames(const char* text) {
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view name = rest.substr(0, rest.find(", "));
      names_[static_cast<std::size_t>(count_++)] = name;
      rest.remove_prefix(name.size() == rest.size() ? name.size() : name.size() + 2);
    }
  }

  int count() const { return count_; }
  std::string_view operator[](int i) const { return names_[static_cast<std::size_t>(i)]; }
  /// "(tokens, heads_kv, head_dim)".
  std::string to_string() const;

 private:
  std::array<std::string_view, max_rank> names_ = {};
  int count_ = 0;
};

/// Requirements of a tensor.
struct Operand {
  std::string_view name;
  DimNames dims;
  DType dtype;
  /// Bytes that rows keep, whose elements are dense; never less than an element. 0: elements at any strides.
  int row_alignment = 0;
};

/// The sizes of a call by name. The first tensor that has one says what it is; those after it must agree.
class CallSizes {
 public:
  /// A size that is known beforehand.
  void know(std::string_view dimension, std::int64_t size);

  /// Throws Error invalid_argument whose field is the operand's name. Allocates nothing unless it throws.
  void check(const Operand& operand, const TensorView& tensor);

  /// Requires: it is known, or was checked.
  std::int64_t operator[](std::string_view dimension) const;

 private:
  struct Known {
    std::string_view dimension;
    std::int64_t size = 0;
  };
  const Known* find(std::string_view dimension) const;

  std::array<Known, 24> known_ = {};
  std::size_t count_ = 0;
};

/// An array of numbers: one after another, but for those dimensions in front of `first_dimension`.
void check_dense_numbers(std::string_view name, const TensorView& tensor, int first_dimension = 0);

/// The stride along a dimension; of a single element, which may carry any stride, 0.
std::int64_t stride_along(const TensorView& tensor, int dimension);

/// Strides of (batch, seqlen, heads, row) or (tokens, heads, row).
TensorStrides row_strides(const TensorView& tensor);

/// Whether these are the same elements in the same places.
bool is_same_view(const TensorView& a, const TensorView& b);

}  // namespace jit
