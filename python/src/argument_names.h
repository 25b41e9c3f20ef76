// How errors name arguments: the library knows a spec's fields and its own arguments, callers of Python their functions'.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <jit/error.h>
#include <jit/tensor.h>

namespace jit::python {

/// A name of the library (a spec's field "dtype", an argument "o") and the function's argument for it.
struct ArgumentName {
  std::string_view known, name;
};

/// `error` about an argument that the library knows by another name.
Error renamed_argument(const Error& error, std::initializer_list<ArgumentName> names);

/// `error` about a field of a spec that was made of a call's arguments, whose caller knows no spec. Fields that are in none
/// of `names` are arguments themselves.
Error renamed_field(const Error& error, std::initializer_list<ArgumentName> names);

/// `error` in a layout of heads before tokens, of what the library was given with tokens before heads: those of `operands`
/// with four dimensions, others being varlen, and those of `scales`, which have no head_dim, with three.
Error with_heads_first(const Error& error, std::initializer_list<const TensorView*> operands,
                       const std::vector<const TensorView*>& scales = {});

/// A view with its second and third dimension of four, or of three where it has no head_dim, exchanged.
TensorView with_middle_swapped(TensorView view);

}  // namespace jit::python
