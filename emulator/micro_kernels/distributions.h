// Inputs that expose how tensor cores multiply and add.
#pragma once

#include <string_view>
#include <vector>

#include "micro_kernels/values.h"

namespace jit::conformance {

struct Distribution {
  std::string_view name;
  Pattern first;
  Pattern second;
  Pattern sum;
};

/// Distributions that suit the operands' type.
inline std::vector<Distribution> distributions(Element element) {
  if (!is_float(element)) return {{"bits", Pattern::bits, Pattern::bits, Pattern::bits}};
  return {{"integers", Pattern::integers, Pattern::integers, Pattern::integers},
          {"normals", Pattern::normals, Pattern::normals, Pattern::normals},
          {"wide", Pattern::wide, Pattern::wide, Pattern::wide},
          {"cancelling", Pattern::canceling, Pattern::mirrored, Pattern::subnormals},
          {"ties", Pattern::ties, Pattern::ties, Pattern::ties},
          {"subnormals", Pattern::subnormals, Pattern::normals, Pattern::subnormals},
          {"specials", Pattern::specials, Pattern::specials, Pattern::specials},
          {"bits", Pattern::bits, Pattern::bits, Pattern::bits}};
}

}  // namespace jit::conformance
