#include "operation_call.h"

#include <bit>
#include <utility>

#include <fmt/format.h>
#include <jit/device.h>

#include "process.h"

namespace jit::python {
namespace {

bool is_cpu(dlpack::Device device) { return device.type == dlpack::cpu || device.type == dlpack::cuda_host; }
bool is_gpu(dlpack::Device device) {
  return device.type == dlpack::cuda || device.type == dlpack::cuda_managed;
}

}  // namespace

OperationCall::OperationCall(nb::handle first, const char* name, nb::handle stream,
                             std::optional<DType> sixteen_bits)
    : first_(first), first_name_(name), sixteen_bits_(sixteen_bits), own_stream_(!stream.is_none()) {
  use_device_here();
  where_ = device_of(first, name);
  emulated_ = emulates_devices();
  if (is_cpu(where_) && !emulated_) {
    refuse(name,
           "is in CPU memory; copy it to the GPU, or choose an emulated device with "
           "use_device(\"emulated:sm_90a\") before the first use of one");
  }
  if (!is_cpu(where_)) {
    if (!is_gpu(where_)) refuse(name, fmt::format("is in {}; NVIDIA GPUs are supported", to_string(where_)));
    if (emulated_) {
      refuse(name,
             "is on a GPU, but this process computes on an emulated device; give arrays in CPU memory, "
             "or do not ask for an emulated device");
    }
    device_ = where_.id;
  }
  if (own_stream_) stream_ = stream_of(stream);
  const CurrentDevice scope(device_);
  if (is_cpu(where_)) {
    stream_ = nullptr;
  } else if (!own_stream_) {
    stream_ = current_stream(first, where_);
  }
  complete_ = emulated_ || needs_complete_results(first);
}

void OperationCall::take(Array array, nb::handle object, const char* name, TensorView& view,
                         bool is_written) {
  if (is_cpu(where_) ? !is_cpu(array.device) : !(is_gpu(array.device) && array.device.id == where_.id)) {
    refuse(name, fmt::format("is in {}, but {} is in {}; all arrays of a call must be in one place",
                             to_string(array.device), first_name_, to_string(where_)));
  }
  // Work on the array may be under way elsewhere than where the call goes.
  const bool same_stream = !own_stream_ && &framework_of(object, name) == &framework_of(first_, first_name_);
  if (array.on_gpu() && !same_stream && orders_work_by_stream(object, name))
    wait_for(stream_, current_stream(object, array.device));
  if (array.owner != nullptr) owners_.push_back(std::move(array.owner));
  view = array.view;
  bound_.push_back({&view, is_written});
}

void OperationCall::read(nb::handle array, const char* name, TensorView& view) {
  if (array.is_none()) return;
  take(import_array(array, name, stream_, sixteen_bits_), array, name, view, false);
}

void OperationCall::write(nb::handle array, const char* name, TensorView& view) {
  if (array.is_none()) return;
  take(given_output(array, name, stream_, sixteen_bits_).array, array, name, view, true);
}

std::size_t OperationCall::make(DType dtype, std::span<const std::int64_t> shape, TensorView& view) {
  Output output = new_output(first_, where_, stream_, dtype, shape);
  view = output.array.view;
  bound_.push_back({&view, true});
  made_.push_back(std::move(output));
  return made_.size() - 1;
}

void OperationCall::stage() {
  if (!emulated_) return;
  // Copies wait for launches of other threads, which want the lock now and then.
  const Unlocked unlocked;
  for (Bound& bound : bound_) {
    bound.staged = Staged(device_, *bound.view, true);
    *bound.view = bound.staged.view();
  }
}

void OperationCall::complete() const {
  if (complete_) synchronize(stream_);
  for (const Bound& bound : bound_) {
    if (bound.is_written) bound.staged.download();
  }
}

int common_alignment(std::initializer_list<const TensorView*> views) {
  std::uint64_t bits = 16;
  for (const TensorView* view : views) {
    if (!view->is_present()) continue;
    bits |= reinterpret_cast<std::uintptr_t>(view->data);
    for (int i = 0; i + 1 < view->rank; ++i) {
      if (view->shape[i] > 1)
        bits |=
            static_cast<std::uint64_t>(view->strides[i]) * static_cast<std::uint64_t>(size_of(view->dtype));
    }
  }
  return 1 << std::countr_zero(bits);
}

int small_size(const TensorView& view, int dimension, const char* name) {
  if (dimension < 0 || dimension >= view.rank)
    refuse(name, fmt::format("has {} dimensions, too few", view.rank));
  const std::int64_t size = view.shape[dimension];
  if (size < 0 || size > 1 << 20) refuse(name, fmt::format("has rows of {} elements", size));
  return static_cast<int>(size);
}

}  // namespace jit::python
