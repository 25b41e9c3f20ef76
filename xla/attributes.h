// The attributes of a call: values by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "xla/abi.h"

namespace jit::xla {

/// One attribute. Its methods throw Error invalid_argument, which names the attribute, for a value of another kind.
class Attribute {
 public:
  /// Attribute `number` of these, which outlive it.
  Attribute(const Attributes& attributes, std::int64_t number);

  std::string_view name() const { return name_; }
  std::string_view text() const;
  bool truth() const;
  /// A number of 32 or 64 bits. Throws where an int has no room for it.
  int whole() const;
  /// A number of 32 or 64 bits, whole or not.
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

/// Throws Error invalid_argument for a name that is none of `known`, a list such as "mask, score".
[[noreturn]] void refuse_unknown(const Attribute& attribute, std::string_view known);

/// All names and values as text: equal for equal ones alone.
std::string key_of(const Attributes& attributes);

}  // namespace jit::xla
