#include "list_gradients_binding.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <jit/list_gradients.h>

#include "argument_names.h"
#include "array.h"
#include "named_arrays.h"
#include "operation_call.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// Gradients with the shapes of q, k and v; None for those that do not exist.
nb::tuple list_gradients_of(nb::handle d_o, nb::handle q, nb::handle k, nb::handle v, nb::handle o,
                            nb::handle lse, nb::handle spec, nb::handle tensors, nb::handle cu_seqlens_q,
                            nb::handle cu_seqlens_k, nb::handle seqused_q, nb::handle seqused_k,
                            nb::handle d_lse, nb::handle sinks, bool d_sinks, std::int64_t part_bytes,
                            nb::handle stream) {
  const ListGradientsSpec problem{.attention = spec_of(spec), .part_bytes = part_bytes};
  validate(problem);
  OperationCall call(q, "q", stream, {});
  BackwardArguments arguments;
  const auto type = call.read(q, "q", arguments.q);
  call.read(d_o, "do", arguments.d_o);
  call.read(k, "k", arguments.k);
  call.read(v, "v", arguments.v);
  call.read(o, "o", arguments.o);
  call.read(lse, "lse", arguments.lse);
  call.read(cu_seqlens_q, "cu_seqlens_q", arguments.cu_seqlens_q);
  call.read(cu_seqlens_k, "cu_seqlens_k", arguments.cu_seqlens_k);
  call.read(seqused_q, "seqused_q", arguments.seqused_q);
  call.read(seqused_k, "seqused_k", arguments.seqused_k);
  call.read(d_lse, "dlse", arguments.d_lse);
  call.read(sinks, "sinks", arguments.sinks);
  const NamedArrays named(tensors);
  std::array<NamedTensor, NamedTensors::capacity> read;
  if (named.size() > read.size())
    refuse("tensors", fmt::format("are {}; at most {} fit", named.size(), read.size()));
  std::size_t count = 0;
  for (const NamedArray& given : named) {
    read[count].name = given.name;
    call.read(given.object, given.name, read[count++].tensor);
  }
  const auto make = [&](const TensorView& like, TensorView& view) -> std::optional<std::size_t> {
    if (!like.is_present()) return {};
    return call.make(like.dtype, std::span(like.shape).first(static_cast<std::size_t>(like.rank)), view,
                     type);
  };
  const auto dq = make(arguments.q, arguments.dq), dk = make(arguments.k, arguments.dk),
             dv = make(arguments.v, arguments.dv);
  std::optional<std::size_t> of_sinks;
  if (d_sinks)
    of_sinks = call.make(DType::fp32, std::array{arguments.q.rank > 1 ? arguments.q.shape[1] : 0},
                         arguments.d_sinks);
  const auto given = [&] {
    BackwardArguments all = arguments;
    for (std::size_t i = 0; i < count; ++i) all.tensors.add(read[i]);
    return all;
  };
  call.stage([&] { check_arguments(problem, given()); });
  call.launch([&](const Context& context) { list_gradients(problem, context)(given(), call.stream()); });
  const auto result = [&](const std::optional<std::size_t>& made) {
    return made ? call.result(*made) : nb::none();
  };
  return nb::make_tuple(result(dq), result(dk), result(dv), result(of_sinks));
}

}  // namespace

void bind_list_gradients(nb::module_& module) {
  module.def("_list_gradients", list_gradients_of, "do"_a, "q"_a, "k"_a, "v"_a.none(), "o"_a, "lse"_a,
             "spec"_a, nb::kw_only(), "tensors"_a, "cu_seqlens_q"_a, "cu_seqlens_k"_a,
             "seqused_q"_a = nb::none(), "seqused_k"_a = nb::none(), "dlse"_a = nb::none(),
             "sinks"_a = nb::none(), "d_sinks"_a = false, "part_bytes"_a = ListGradientsSpec().part_bytes,
             "stream"_a = nb::none());
}

}  // namespace jit::python
