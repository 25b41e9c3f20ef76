#include "choose_keys_binding.h"

#include <array>
#include <cstdint>

#include <fmt/format.h>
#include <jit/choose_keys.h>

#include "argument_names.h"
#include "given.h"
#include "operation_call.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

nb::object choose_keys_of(nb::handle q, nb::handle k, nb::handle weights, int count, nb::handle k_scale,
                          nb::handle starts, nb::handle ends, nb::handle page_table, std::int64_t columns,
                          std::int64_t score_bytes, nb::handle dtype, nb::handle stream) {
  OperationCall call(weights, "weights", stream, input_dtype_of(dtype, "dtype"));
  ChooseKeysArguments arguments;
  arguments.columns = columns;
  call.read(q, "q", arguments.q);
  call.read(k, "k", arguments.k);
  call.read(weights, "weights", arguments.weights);
  call.read(k_scale, "k_scale", arguments.k_scale);
  call.read(starts, "starts", arguments.starts);
  call.read(ends, "ends", arguments.ends);
  call.read(page_table, "page_table", arguments.page_table);
  const bool is_paged = arguments.page_table.is_present();
  if (arguments.q.rank != 3)
    refuse("q", fmt::format("has {} dimensions; it must be (tokens, heads, head_dim)", arguments.q.rank));
  if (arguments.k.rank != (is_paged ? 3 : 2))
    refuse("k", fmt::format("has {} dimensions; it must be (keys, head_dim), or with page_table (pages, "
                            "page_size, head_dim)",
                            arguments.k.rank));
  const ChooseKeysSpec spec{.scores = {.dtype = arguments.q.dtype,
                                       .heads = small_size(arguments.q, 1, "q"),
                                       .head_dim = small_size(arguments.q, 2, "q"),
                                       .page_size = is_paged ? small_size(arguments.k, 1, "k") : 0,
                                       .k_scale = arguments.k_scale.is_present()},
                            .k = count,
                            .score_bytes = score_bytes};
  try {
    validate(spec);
    const std::array<std::int64_t, 3> shape = {arguments.q.shape[0], 1, count};
    const std::size_t indices = call.make(DType::int32, shape, arguments.indices),
                      counts = call.make(DType::int32, std::span(shape).first<2>(), arguments.counts);
    call.stage([&] { check_arguments(spec, arguments); });
    call.launch([&](const Context& context) { choose_keys(spec, context)(arguments, call.stream()); });
    return nb::make_tuple(call.result(indices), call.result(counts));
  } catch (const Error& error) {
    throw renamed_field(
        error, {{"dtype", "q"}, {"heads", "q"}, {"head_dim", "q"}, {"page_size", "k"}, {"k", "count"}});
  }
}

}  // namespace

void bind_choose_keys(nb::module_& module) {
  module.def("_choose_keys", choose_keys_of, "q"_a, "k"_a, "weights"_a, "count"_a, nb::kw_only(),
             "k_scale"_a = nb::none(), "starts"_a = nb::none(), "ends"_a = nb::none(),
             "page_table"_a = nb::none(), "columns"_a = -1, "score_bytes"_a = ChooseKeysSpec().score_bytes,
             "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
