#include "call_arrays.h"

#include <utility>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>

#include "process.h"

namespace jit::python {
namespace {

bool is_cpu(dlpack::Device device) { return device.type == dlpack::cpu || device.type == dlpack::cuda_host; }
bool is_gpu(dlpack::Device device) {
  return device.type == dlpack::cuda || device.type == dlpack::cuda_managed;
}

}  // namespace

CallArrays::CallArrays(nb::handle first, const char* name, nb::handle stream, int cpu_device)
    : first_(first, name) {
  use_device_here();
  where_ = device_of(first_);
  emulated_ = emulates_devices();
  if (is_cpu(where_)) {
    if (!emulated_) {
      refuse(name,
             "is in CPU memory; copy it to the GPU, or choose an emulated device with "
             "use_device(\"emulated:sm_90a\") before the first use of one");
    }
    device_ = cpu_device;
  } else {
    if (!is_gpu(where_)) refuse(name, fmt::format("is in {}; NVIDIA GPUs are supported", to_string(where_)));
    if (emulated_) {
      refuse(name,
             "is on a GPU, but this process computes on an emulated device; give arrays in CPU memory, "
             "or do not ask for an emulated device");
    }
    device_ = where_.id;
  }
  const Framework& framework = first_.framework;
  if (framework.exchange != nullptr) gradients_ = gradients_of(framework);
  if (!stream.is_none()) {
    const Stream given = stream_of(stream);
    if (is_gpu(where_)) stream_ = given;
  } else {
    stream_ = current_stream(framework, where_);
    ordered_after_ = framework.exchange;
  }
  complete_ = emulated_ || framework.needs_complete_results;
}

// Asked once for all arrays of a framework.
Gradients CallArrays::gradients_of_call(const GivenArray& given) const {
  const bool is_same = given.framework.is_grad_enabled.is(first_.framework.is_grad_enabled);
  return is_same ? gradients_ : Gradients::may_be_recorded;
}

void CallArrays::check_place(dlpack::Device device, const char* name) const {
  if (is_cpu(where_) ? is_cpu(device) : is_gpu(device) && device.id == where_.id) return;
  refuse(name, fmt::format("is in {}, but {} is in {}; all arrays of a call must be in one place",
                           to_string(device), first_.argument, to_string(where_)));
}

// Returns import(). When an exporter refuses an array on another device, the error names the device instead,
// the better reason.
template <class Import>
auto CallArrays::here(const GivenArray& given, const Import& import) const {
  try {
    return import(given);
  } catch (const Error&) {
    if (given.framework.exchange == nullptr) check_place(device_of(given), given.argument);
    throw;
  }
}

void CallArrays::take(const GivenArray& given, Array& array) {
  check_place(array.device, given.argument);
  // The array's pending work may be on another stream than the call's.
  const dlpack::ExchangeApi* exchange = given.framework.exchange;
  if (exchange != nullptr && exchange != ordered_after_ && array.on_gpu()) {
    const CurrentDevice scope(device_);
    wait_for(stream_, current_stream(given.framework, array.device));
    ordered_after_ = exchange;
  }
  if (array.owner != nullptr) owners_.push_back(std::move(array.owner));
}

Array CallArrays::read(nb::handle object, const char* name, std::optional<DType> sixteen_bits) {
  const GivenArray given(object, name);
  Array array = here(given, [&](const GivenArray& one) {
    return import_array(one, where_, stream_, sixteen_bits, gradients_of_call(one));
  });
  take(given, array);
  return array;
}

Output CallArrays::write(nb::handle object, const char* name, std::optional<DType> sixteen_bits) {
  const GivenArray given(object, name);
  Output output = here(given, [&](const GivenArray& one) {
    return given_output(one, where_, stream_, sixteen_bits, gradients_of_call(one));
  });
  take(given, output.array);
  return output;
}

Output CallArrays::make(DType dtype, std::span<const std::int64_t> shape,
                        std::optional<dlpack::DataType> type) const {
  return new_output(first_, where_, stream_, dtype, shape, type);
}

void CallArrays::complete() const {
  if (complete_) synchronize(stream_);
}

}  // namespace jit::python
