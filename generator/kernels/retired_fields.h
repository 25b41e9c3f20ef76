// Config fields of earlier versions.
#pragma once

#include <span>
#include <string_view>

namespace jit {

/// A field that a family's config no longer has.
struct RetiredField {
  std::string_view family;
  std::string_view name;
  std::string_view now;  ///< current behavior, as a part of a sentence
  std::string_view advice = "leave it out";
};

/// All retired fields. Another family may still have a field of that name.
std::span<const RetiredField> retired_fields();

/// The retired field of a family; null if there is none.
const RetiredField* find_retired(std::string_view family, std::string_view name);

/// The first retired field of this name in any family; null if there is none.
const RetiredField* find_retired(std::string_view name);

}  // namespace jit
