#include "generator/tensors/dims.h"

namespace jit {
namespace {

std::string from(const Dims& dims, int first) {
  std::string text = "(";
  for (int i = first; i < dims.count(); ++i) {
    if (i != first) text += ", ";
    text += dims[i].extent->name;
  }
  return text + ")";
}

}  // namespace

std::string Dims::to_string() const {
  return fewest() == count_ ? from(*this, 0) : from(*this, 1) + " or " + from(*this, 0);
}

}  // namespace jit
