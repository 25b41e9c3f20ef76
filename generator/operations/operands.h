// Tensor operands of an operation's call: checks of each, and that sizes agree.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <jit/tensor.h>

#include "templates/base/params.cuh"

namespace jit {

/// Names of a tensor's dimensions, as in "tokens, heads_kv, head_dim".
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

/// The requirements for a tensor.
struct Operand {
  std::string_view name;
  DimNames dims;
  DType dtype;
  /// Alignment of rows in bytes, at least an element; elements in a row must be dense. 0: any strides.
  int row_alignment = 0;
};

/// Sizes of a call by dimension name. The first tensor with a dimension defines it; later ones must agree.
class CallSizes {
 public:
  /// Defines a size in advance.
  void know(std::string_view dimension, std::int64_t size);

  /// Throws Error invalid_argument, whose field is the operand's name. Allocates only to throw.
  void check(const Operand& operand, const TensorView& tensor);

  /// Requires: the size is defined.
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

/// Checks that an array is dense, except for dimensions before `first_dimension`.
void check_dense_numbers(std::string_view name, const TensorView& tensor, int first_dimension = 0);

/// The stride of a dimension; 0 for a single element, which may have any stride.
std::int64_t stride_along(const TensorView& tensor, int dimension);

/// Strides of (batch, seqlen, heads, row) or (tokens, heads, row).
TensorStrides row_strides(const TensorView& tensor);

/// Whether two views have the same elements at the same addresses.
bool is_same_view(const TensorView& a, const TensorView& b);

}  // namespace jit
