#include "index_loss_binding.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include <fmt/format.h>
#include <jit/index_loss.h>

#include "argument_names.h"
#include "given.h"
#include "operation_call.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// The loss; with d_loss the gradients of q, k and weights in its place.
nb::object index_loss_of(nb::handle q, nb::handle k, nb::handle weights, nb::handle indices,
                         nb::handle targets, nb::handle counts, nb::handle d_loss, std::int64_t part_bytes,
                         nb::handle dtype, nb::handle stream) {
  OperationCall call(weights, "weights", stream, input_dtype_of(dtype, "dtype"));
  IndexLossArguments arguments;
  const auto type = call.read(q, "q", arguments.q);
  call.check_dtype(arguments.q, "q");
  call.read(k, "k", arguments.k);
  call.read(weights, "weights", arguments.weights);
  call.read(indices, "indices", arguments.indices);
  call.read(targets, "targets", arguments.targets);
  call.read(counts, "counts", arguments.counts);
  call.read(d_loss, "d_loss", arguments.d_loss);
  if (arguments.q.rank != 3)
    refuse("q", fmt::format("has {} dimensions; it must be (tokens, heads, head_dim)", arguments.q.rank));
  const IndexLossSpec spec{.dtype = arguments.q.dtype,
                           .heads = small_size(arguments.q, 1, "q"),
                           .head_dim = small_size(arguments.q, 2, "q"),
                           .part_bytes = part_bytes};
  try {
    validate(spec);
    const auto sizes = [](const TensorView& like) {
      return std::span(like.shape).first(static_cast<std::size_t>(like.rank));
    };
    const auto run = [&] {
      call.stage([&] { check_arguments(spec, arguments); });
      call.launch([&](const Context& context) { index_loss(spec, context)(arguments, call.stream()); });
    };
    if (!arguments.d_loss.is_present()) {
      const std::size_t loss = call.make(DType::fp32, sizes(arguments.q).first(1), arguments.loss);
      run();
      return call.result(loss);
    }
    const std::size_t dq = call.make(spec.dtype, sizes(arguments.q), arguments.dq, type),
                      dk = call.make(spec.dtype, sizes(arguments.k), arguments.dk, type),
                      d_weights = call.make(DType::fp32, sizes(arguments.weights), arguments.d_weights);
    run();
    return nb::make_tuple(call.result(dq), call.result(dk), call.result(d_weights));
  } catch (const Error& error) {
    throw renamed_field(error, {{"dtype", "q"}, {"heads", "q"}, {"head_dim", "q"}});
  }
}

}  // namespace

void bind_index_loss(nb::module_& module) {
  module.def("_index_loss", index_loss_of, "q"_a, "k"_a, "weights"_a, "indices"_a, "targets"_a,
             "counts"_a = nb::none(), nb::kw_only(), "d_loss"_a = nb::none(),
             "part_bytes"_a = IndexLossSpec().part_bytes, "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
