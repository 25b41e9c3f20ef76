// Argument names in errors: the library names a spec's fields and its own arguments, Python callers use their
// function's parameters.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <jit/error.h>
#include <jit/tensor.h>

namespace jit::python {

/// A library name (a spec's field "dtype", an argument "o") and the function's argument for it.
struct ArgumentName {
  std::string_view known, name;
};

/// `error` with the library's argument renamed.
Error renamed_argument(const Error& error, std::initializer_list<ArgumentName> names);

/// `error` about a spec's field, renamed for a caller who passed only arguments. Fields that are not in
/// `names` are arguments themselves.
Error renamed_field(const Error& error, std::initializer_list<ArgumentName> names);

/// `error` for a heads-first caller, where the library got tokens first: swaps shapes of `operands` with four
/// dimensions (others are varlen) and of `scales`, which lack head_dim, with three.
Error with_heads_first(const Error& error, std::initializer_list<const TensorView*> operands,
                       const std::vector<const TensorView*>& scales = {});

/// A view with the second and third of its four dimensions swapped, or of three without head_dim.
TensorView with_middle_swapped(TensorView view);

}  // namespace jit::python
