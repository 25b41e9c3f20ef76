#include "call.h"

#include <bit>
#include <string>

#include <fmt/format.h>
#include <jit/device.h>
#include <nanobind/stl/string.h>

#include "generator/arguments.h"
#include "process.h"
#include "runtime/driver_api.h"

namespace jit::python {
namespace {

// (batch, heads, seqlen, head_dim) and (batch, seqlen, heads, head_dim) differ in what the middle sizes mean.
TensorView in_layout(TensorView view, Layout layout) {
  if (layout == Layout::bhsd && view.rank == 4) {
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.strides[1], view.strides[2]);
  }
  return view;
}

std::uint64_t alignment_bits(const TensorView& view) {
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(view.data);
  for (int i = 0; i + 1 < view.rank; ++i) {
    if (view.shape[i] > 1) bits |= static_cast<std::uint64_t>(view.strides[i]) * 2;
  }
  return bits;
}

bool is_cpu(dlpack::Device device) { return device.type == dlpack::cpu || device.type == dlpack::cuda_host; }

Stream stream_of(nb::handle stream) {
  nb::object number = nb::borrow(stream);
  if (nb::hasattr(stream, "__cuda_stream__")) number = nb::object(stream.attr("__cuda_stream__")())[1];
  if (!PyLong_Check(number.ptr()))
    throw nb::type_error("stream must be an int, an object with __cuda_stream__, or None");
  const auto value = nb::cast<std::uintptr_t>(number);
  return reinterpret_cast<Stream>(value);
}

}  // namespace

Layout parse_layout(nb::handle layout) {
  if (PyUnicode_Check(layout.ptr())) {
    if (PyUnicode_CompareWithASCIIString(layout.ptr(), "BSHD") == 0) return Layout::bshd;
    if (PyUnicode_CompareWithASCIIString(layout.ptr(), "BHSD") == 0) return Layout::bhsd;
  }
  refuse("layout", fmt::format("is {}; it must be \"BSHD\" (batch, seqlen, heads, head_dim) or \"BHSD\"",
                               nb::repr(layout).c_str()));
}

Call::Call(const CallInputs& inputs) : inputs_(inputs) {
  where_ = device_of(inputs.q, "q");
  use_device_here();
  emulated_ = driver().emulated;
  if (is_cpu(where_) && !emulated_) {
    refuse("q",
           "is in CPU memory; copy it to the GPU, or choose an emulated device with "
           "use_device(\"emulated:sm_90a\") before the first use of one");
  }
  if (!is_cpu(where_)) {
    if (where_.type != dlpack::cuda && where_.type != dlpack::cuda_managed)
      refuse("q", fmt::format("is in {}; NVIDIA GPUs are supported", to_string(where_)));
    if (emulated_) {
      refuse("q",
             "is on a GPU, but this process computes on an emulated device; give arrays in CPU memory, or do "
             "not "
             "ask for an emulated device");
    }
    device_ = where_.id;
  }
  stream_ = inputs.stream.is_none() ? current_stream(inputs.q, where_) : stream_of(inputs.stream);
  if (is_cpu(where_)) stream_ = nullptr;
  complete_ = emulated_ || needs_complete_results(inputs.q);

  arguments_.q = read_operand(inputs.q, "q");
  arguments_.k = read_operand(inputs.k, "k");
  arguments_.v = read_operand(inputs.v, "v");
  if (inputs.dtype && arguments_.q.dtype != *inputs.dtype)
    refuse("dtype",
           fmt::format("is {}, but q holds {}", to_string(*inputs.dtype), to_string(arguments_.q.dtype)));
  read_tensors();
  if (!inputs.out.is_none()) read_output();
}

void Call::check_place(dlpack::Device device, const char* name) const {
  const bool on_gpu = device.type == dlpack::cuda || device.type == dlpack::cuda_managed;
  if (is_cpu(where_) ? is_cpu(device) : on_gpu && device.id == where_.id) return;
  refuse(name, fmt::format("is in {}, but q is in {}; all arrays of a call must be in one place",
                           to_string(device), to_string(where_)));
}

TensorView Call::read(nb::handle object, const char* name, std::optional<DType> dtype) {
  Array array = import_array(object, name, stream_, dtype);
  check_place(array.device, name);
  if (array.owner != nullptr) owners_.push_back(std::move(array.owner));
  return array.view;
}

TensorView Call::read_operand(nb::handle object, const char* name) {
  const TensorView view = read(object, name, inputs_.dtype);
  if (view.dtype != DType::bf16 && view.dtype != DType::fp16)
    refuse(name, fmt::format("is {}; attention takes bf16 and fp16", to_string(view.dtype)));
  if (view.rank != 4) {
    refuse(name, fmt::format("has {} dimensions; it must have 4: {}", view.rank,
                             inputs_.layout == Layout::bshd ? "(batch, seqlen, heads, head_dim)"
                                                            : "(batch, heads, seqlen, head_dim)"));
  }
  return in_layout(view, inputs_.layout);
}

void Call::read_tensors() {
  if (inputs_.tensors.is_none()) return;
  if (!PyDict_Check(inputs_.tensors.ptr()))
    throw nb::type_error("tensors must be a dict of names and arrays, or None");
  for (const auto& [key, value] : nb::cast<nb::dict>(inputs_.tensors)) {
    const char* name = PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8(key.ptr()) : nullptr;
    if (name == nullptr) throw nb::type_error("tensors must be a dict whose keys are names");
    tensor_names_.push_back(nb::borrow(key));
    arguments_.tensors.add({name, read(value, name, inputs_.dtype)});
  }
}

void Call::read_output() {
  out_ = given_output(inputs_.out, "out", stream_, arguments_.q.dtype);
  check_place(out_.array.device, "out");
  arguments_.o = in_layout(out_.array.view, inputs_.layout);
}

int Call::alignment() const {
  std::uint64_t bits = 16 | alignment_bits(q()) | alignment_bits(k()) | alignment_bits(v());
  if (out_.given) bits |= alignment_bits(arguments_.o);
  const int alignment = 1 << std::countr_zero(bits);
  return alignment < 2 ? 2 : alignment;
}

void Call::make_outputs(const AttentionSpec& spec) {
  check_inputs(spec, arguments_);
  const std::int64_t batch = q().shape[0], seqlen = q().shape[1], heads = q().shape[2],
                     head_dim_v = v().shape[3];
  if (!out_.given) {
    const bool bshd = inputs_.layout == Layout::bshd;
    const std::int64_t shape[] = {batch, bshd ? seqlen : heads, bshd ? heads : seqlen, head_dim_v};
    out_ = new_output(inputs_.q, where_, stream_, q().dtype, shape);
    arguments_.o = in_layout(out_.array.view, inputs_.layout);
  }
  if (inputs_.return_lse) {
    const std::int64_t shape[] = {batch, heads, seqlen};
    lse_ = new_output(inputs_.q, where_, stream_, DType::fp32, shape);
    arguments_.lse = lse_.array.view;
  }
  if (emulated_) stage();
}

void Call::stage() {
  const auto copy = [&](const TensorView& host) {
    return staged_inputs_.emplace_back(device_, host, true).view();
  };
  arguments_.q = copy(arguments_.q);
  arguments_.k = copy(arguments_.k);
  arguments_.v = copy(arguments_.v);
  NamedTensors tensors;
  for (const NamedTensor& tensor : arguments_.tensors) tensors.add({tensor.name, copy(tensor.tensor)});
  arguments_.tensors = tensors;
  staged_out_ = Staged(device_, arguments_.o, out_.given);
  arguments_.o = staged_out_.view();
  if (!inputs_.return_lse) return;
  staged_lse_ = Staged(device_, arguments_.lse, false);
  arguments_.lse = staged_lse_.view();
}

void Call::complete() const {
  if (complete_) check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  staged_out_.download();
  staged_lse_.download();
}

nb::object Call::result() const {
  return inputs_.return_lse ? nb::object(nb::make_tuple(out_.result(), lse_.result())) : out_.result();
}

Error Call::renamed(const Error& error) const {
  if (error.code() != ErrorCode::invalid_argument || error.field() != "o") return error;
  const std::string& message = error.message();
  return Error(error.code(), error.stage(), "out", "out" + message.substr(message.starts_with("o:") ? 1 : 0));
}

}  // namespace jit::python
