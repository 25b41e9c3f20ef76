#include "xla/staged.h"

#include <cstdint>

namespace jit::xla {
namespace {

std::size_t bytes_of(const TensorView& view) {
  std::int64_t elements = 1;
  for (int i = 0; i < view.rank; ++i) elements *= view.shape[i];
  return static_cast<std::size_t>(elements) * static_cast<std::size_t>(size_of(view.dtype));
}

}  // namespace

Staged::Staged(int device, const CallBuffers& host) : buffers_(host) {
  const auto copy = [&](TensorView& view) {
    const std::size_t bytes = bytes_of(view);
    memory_.emplace_back(device, bytes);
    if (bytes != 0) memory_.back().upload(view.data, bytes);
    view.data = memory_.back().data();
  };
  for (NamedBuffer& result : buffers_.results) {
    results_.push_back(result.view.data);
    copy(result.view);
  }
  for (NamedBuffer& operand : buffers_.operands) {
    void* const data = operand.view.data;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (buffers_.results[i].name == operand.name && results_[i] == data)
        operand.view.data = buffers_.results[i].view.data;
    }
    if (operand.view.data == data) copy(operand.view);
  }
}

void Staged::download() const {
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const std::size_t bytes = memory_[i].size();
    if (bytes != 0) memory_[i].download(results_[i], bytes);
  }
}

}  // namespace jit::xla
