// Rules that specs of operations share, and lines of their programs.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <jit/tensor.h>

#include "generator/program/program.h"

namespace jit {

/// Throws Error invalid_spec: "spec.FIELD = VALUE RULE; nearest supported: NEAREST".
[[noreturn]] void refuse_spec(std::string_view field, std::string value, std::string rule,
                              std::string nearest);

/// Throws that error unless `low` ≤ `value` ≤ `high`.
void check_range(std::string_view field, int value, int low, int high);

/// Throws that error unless `value` is one of `choices`.
void check_choice(std::string_view field, DType value, std::initializer_list<DType> choices);

/// Throws that error unless `alignment` is 16, 8, 4 or 2 bytes.
void check_alignment(int alignment);

/// Throws that error unless `rotary_dim` leading elements of a head can be rotated by a table of this type.
void check_rotary(int rotary_dim, int head_dim, DType cos_sin_dtype);

/// Throws that error unless heads can be normalized with these options.
void check_norm(DType norm_dtype, float norm_eps);

/// "  using NAME = TYPE;  // DOC"
std::string type_line(std::string_view name, DType dtype, std::string_view doc);

/// "  static constexpr TYPE NAME = VALUE;  // DOC"
std::string constant_line(std::string_view type, std::string_view name, std::string_view value,
                          std::string_view doc);

/// The end of a program: assertions that host and device agree on `params` of `bytes` bytes, other
/// `assertions`, and the kernel, which calls `function` with Config and its parameters.
std::string kernel_text(const Program& program, std::string_view params, std::size_t bytes,
                        std::string_view function, std::string_view assertions = {});

}  // namespace jit
