// Fields that configs had in earlier versions.
#pragma once

#include <span>
#include <string_view>

namespace jit {

/// A field that a family's config has no more.
struct RetiredField {
  std::string_view family;
  std::string_view name;
  std::string_view now;  ///< how kernels do in its place, as the middle of a sentence
  std::string_view advice = "leave it out";
};

/// All of them. A name may be a field of another family still.
std::span<const RetiredField> retired_fields();

/// The field that a family once had; null: it never had one of this name.
const RetiredField* find_retired(std::string_view family, std::string_view name);

/// The first one of this name in any family; null: there is none.
const RetiredField* find_retired(std::string_view name);

}  // namespace jit
