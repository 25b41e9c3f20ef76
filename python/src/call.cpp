#include "call.h"

#include <algorithm>
#include <bit>
#include <span>
#include <string>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>
#include <nanobind/stl/string.h>

#include "process.h"

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
    if (view.shape[i] > 1)
      bits |= static_cast<std::uint64_t>(view.strides[i]) * static_cast<std::uint64_t>(size_of(view.dtype));
  }
  return bits;
}

bool is_cpu(dlpack::Device device) { return device.type == dlpack::cpu || device.type == dlpack::cuda_host; }

}  // namespace

Layout parse_layout(nb::handle layout) {
  if (PyUnicode_Check(layout.ptr())) {
    if (PyUnicode_CompareWithASCIIString(layout.ptr(), "BSHD") == 0) return Layout::bshd;
    if (PyUnicode_CompareWithASCIIString(layout.ptr(), "BHSD") == 0) return Layout::bhsd;
  }
  refuse("layout", fmt::format("is {}; it must be \"BSHD\" (batch, seqlen, heads, head_dim) or \"BHSD\"",
                               nb::repr(layout).c_str()));
}

Call::Call(const CallInputs& inputs) : inputs_(inputs), tensors_(inputs.tensors) {
  use_device_here();
  where_ = device_of(inputs.q, "q");
  emulated_ = emulates_devices();
  if (is_cpu(where_)) {
    if (!emulated_) {
      refuse("q",
             "is in CPU memory; copy it to the GPU, or choose an emulated device with "
             "use_device(\"emulated:sm_90a\") before the first use of one");
    }
    device_ = inputs.device.value_or(0);
  } else {
    if (where_.type != dlpack::cuda && where_.type != dlpack::cuda_managed)
      refuse("q", fmt::format("is in {}; NVIDIA GPUs are supported", to_string(where_)));
    if (emulated_) {
      refuse("q",
             "is on a GPU, but this process computes on an emulated device; give arrays in CPU memory, "
             "or do not ask for an emulated device");
    }
    device_ = where_.id;
  }
  if (!inputs.stream.is_none()) stream_ = stream_of(inputs.stream);
  const CurrentDevice scope(device_);
  if (is_cpu(where_)) {
    stream_ = nullptr;
  } else if (inputs.stream.is_none()) {
    stream_ = current_stream(inputs.q, where_);
  }
  complete_ = emulated_ || needs_complete_results(inputs.q);

  const bool ragged_q = inputs.sequences.has(&AttentionArguments::cu_seqlens_q);
  const bool ragged_kv = inputs.sequences.has(&AttentionArguments::cu_seqlens_k);
  arguments_.q = read_operand(inputs.q, "q", ragged_q);
  arguments_.k = read_operand(inputs.k, "k", ragged_kv);
  arguments_.v = read_operand(inputs.v, "v", ragged_kv);
  if (inputs.dtype && arguments_.q.dtype != *inputs.dtype)
    refuse("dtype",
           fmt::format("is {}, but q holds {}", to_string(*inputs.dtype), to_string(arguments_.q.dtype)));
  for (const NamedArray& given : tensors_)
    arguments_.tensors.add({given.name, read(given.object, given.name, inputs_.dtype)});
  read_sequences();
  if (!inputs.out.is_none()) read_output();
}

void Call::read_sequences() {
  for (std::size_t i = 0; i < sequence_arrays.size(); ++i) {
    const nb::handle array = inputs_.sequences.arrays[i];
    if (array.is_valid() && !array.is_none())
      arguments_.*sequence_arrays[i].view = read(array, sequence_arrays[i].name, std::nullopt);
  }
  arguments_.num_splits = inputs_.sequences.num_splits;
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
  if (object.is(inputs_.q)) q_type_ = array.type;
  // Work on the array may be under way elsewhere than where the call goes.
  const bool same_stream =
      inputs_.stream.is_none() && &framework_of(object, name) == &framework_of(inputs_.q, "q");
  if (array.on_gpu() && !same_stream && orders_work_by_stream(object, name))
    wait_for(stream_, current_stream(object, array.device));
  if (array.owner != nullptr) owners_.push_back(std::move(array.owner));
  return array.view;
}

TensorView Call::read_operand(nb::handle object, const char* name, bool is_ragged) {
  const TensorView view = read(object, name, inputs_.dtype ? inputs_.dtype : inputs_.spec_dtype);
  if (!facts(view.dtype).is_operand)
    refuse(name, fmt::format("is {}; attention takes bf16 and fp16", to_string(view.dtype)));
  if (view.rank != (is_ragged ? 3 : 4)) {
    refuse(name, fmt::format("has {} dimensions; it must have {}", view.rank,
                             is_ragged                        ? "3 beside cu_seqlens: (rows, heads, head_dim)"
                             : inputs_.layout == Layout::bshd ? "4: (batch, seqlen, heads, head_dim)"
                                                              : "4: (batch, heads, seqlen, head_dim)"));
  }
  return in_layout(view, inputs_.layout);
}

void Call::read_output() {
  out_ = given_output(inputs_.out, "out", stream_, arguments_.q.dtype);
  check_place(out_.array.device, "out");
  arguments_.o = in_layout(out_.array.view, inputs_.layout);
}

int Call::alignment() const {
  for (const auto& [name, view] :
       {std::pair{"q", &arguments_.q}, {"k", &arguments_.k}, {"v", &arguments_.v}}) {
    if (reinterpret_cast<std::uintptr_t>(view->data) % 2 != 0)
      refuse(name, "starts at an odd address; elements of 16 bits must lie at even ones");
  }
  std::uint64_t bits = 16 | alignment_bits(q()) | alignment_bits(k()) | alignment_bits(v());
  if (out_.given) bits |= alignment_bits(arguments_.o);
  const int alignment = 1 << std::countr_zero(bits);
  return alignment < 2 ? 2 : alignment;
}

void Call::make_outputs(const AttentionSpec& spec) {
  check_inputs(spec, arguments_);
  const TensorView& queries = q();
  const bool is_ragged = queries.rank == 3;
  if (!out_.given) {
    std::int64_t shape[max_rank] = {};
    std::copy_n(queries.shape, queries.rank, shape);
    if (inputs_.layout == Layout::bhsd && !is_ragged) std::swap(shape[1], shape[2]);
    shape[queries.rank - 1] = v().shape[v().rank - 1];
    const DType dtype = output_dtype(spec);
    const bool as_q = dtype == q().dtype;  // then, as q's framework has it
    const std::span<const std::int64_t> sizes(shape, static_cast<std::size_t>(queries.rank));
    out_ = new_output(inputs_.q, where_, stream_, dtype, sizes, as_q ? std::optional(q_type_) : std::nullopt);
    arguments_.o = in_layout(out_.array.view, inputs_.layout);
  }
  if (inputs_.return_lse) {
    const std::int64_t dense[] = {queries.shape[0], queries.shape[2], queries.shape[1]};
    const std::int64_t ragged[] = {queries.shape[1], queries.shape[0]};
    lse_ =
        new_output(inputs_.q, where_, stream_, DType::fp32,
                   is_ragged ? std::span<const std::int64_t>(ragged) : std::span<const std::int64_t>(dense));
    arguments_.lse = lse_.array.view;
  }
  if (emulated_) stage(spec);
}

void Call::stage(const AttentionSpec& spec) {
  check_arguments(spec, arguments_);  // of copies the call could not tell which share memory
  // Copies wait for launches of other threads, which want the lock now and then.
  const Unlocked unlocked;
  const auto copy = [&](const TensorView& host) {
    return staged_inputs_.emplace_back(device_, host, true).view();
  };
  arguments_.q = copy(arguments_.q);
  arguments_.k = copy(arguments_.k);
  arguments_.v = copy(arguments_.v);
  NamedTensors tensors;
  for (const NamedTensor& tensor : arguments_.tensors) tensors.add({tensor.name, copy(tensor.tensor)});
  arguments_.tensors = tensors;
  for (const SequenceArray& array : sequence_arrays) {
    TensorView& view = arguments_.*array.view;
    if (view.is_present()) view = copy(view);
  }
  staged_out_ = Staged(device_, arguments_.o, out_.given);
  arguments_.o = staged_out_.view();
  if (!inputs_.return_lse) return;
  staged_lse_ = Staged(device_, arguments_.lse, false);
  arguments_.lse = staged_lse_.view();
}

void Call::complete() const {
  if (complete_) synchronize(stream_);
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
