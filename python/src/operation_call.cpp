#include "operation_call.h"

#include <fmt/format.h>

#include "process.h"

namespace jit::python {

void OperationCall::bind(TensorView& view, const Array& array, bool is_written) {
  view = array.view;
  if (arrays_.emulated()) bound_.push_back({&view, is_written});
}

void OperationCall::check_dtype(const TensorView& first, const char* name) const {
  if (sixteen_bits_ && first.dtype != *sixteen_bits_)
    refuse("dtype",
           fmt::format("is {}, but {} holds {}", to_string(*sixteen_bits_), name, to_string(first.dtype)));
}

std::optional<dlpack::DataType> OperationCall::read(nb::handle array, const char* name, TensorView& view) {
  if (array.is_none()) return {};
  const Array read = arrays_.read(array, name, sixteen_bits_);
  bind(view, read, false);
  return read.type;
}

void OperationCall::write(nb::handle array, const char* name, TensorView& view) {
  if (!array.is_none()) bind(view, arrays_.write(array, name, sixteen_bits_).array, true);
}

void OperationCall::read_or_write(nb::handle array, const char* name, TensorView& view, int rank) {
  if (array.is_none()) return;
  const Array read = arrays_.read(array, name, sixteen_bits_);
  if (read.view.rank == rank) {
    write(array, name, view);
  } else {
    bind(view, read, false);
  }
}

std::size_t OperationCall::make(DType dtype, std::span<const std::int64_t> shape, TensorView& view,
                                std::optional<dlpack::DataType> type) {
  made_.push_back(arrays_.make(dtype, shape, type));
  bind(view, made_.back().array, true);
  return made_.size() - 1;
}

void OperationCall::stage_all() {
  // Copies wait for launches of other threads, which need the lock at times.
  const Unlocked unlocked;
  for (Bound& bound : bound_) {
    bound.staged = Staged(device(), *bound.view, true);
    *bound.view = bound.staged.view();
  }
}

void OperationCall::complete() const {
  arrays_.complete();
  for (const Bound& bound : bound_) {
    if (bound.is_written) bound.staged.download();
  }
}

int small_size(const TensorView& view, int dimension, const char* name) {
  if (dimension < 0 || dimension >= view.rank)
    refuse(name, fmt::format("has {} dimensions, too few", view.rank));
  const std::int64_t size = view.shape[dimension];
  if (size < 0 || size > 1 << 20) refuse(name, fmt::format("has rows of {} elements", size));
  return static_cast<int>(size);
}

}  // namespace jit::python
