// A call's attributes: values by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "xla/abi.h"

namespace jit::xla {

/// An attribute. Methods throw Error invalid_argument, naming it, for a value of another kind.
class Attribute {
 public:
  /// Attribute `number` of these, which outlive it.
  Attribute(const Attributes& attributes, std::int64_t number);

  std::string_view name() const { return name_; }
  std::string_view text() const;
  bool truth() const;
  /// A 32- or 64-bit integer. Throws when it exceeds int.
  int whole() const;
  /// A 32- or 64-bit number, integer or real.
  double real() const;
  const Attributes& dictionary() const;

 private:
  const Scalar& scalar(const char* wanted) const;

  std::string_view name_;
  AttributeKind kind_;
  const void* item_;
};

/// All attributes of a dictionary.
std::vector<Attribute> all_of(const Attributes& attributes);

/// Throws Error invalid_argument for a name not among `known`, a list such as "mask, score".
[[noreturn]] void refuse_unknown(const Attribute& attribute, std::string_view known);

/// All names and values as text, unique to them.
std::string key_of(const Attributes& attributes);

}  // namespace jit::xla
