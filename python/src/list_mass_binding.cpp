#include "list_mass_binding.h"

#include <cstddef>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <jit/list_mass.h>

#include "argument_names.h"
#include "given.h"
#include "operation_call.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

nb::object list_mass_of(nb::handle q, nb::handle k, nb::handle lse, nb::handle indices, nb::handle counts,
                        nb::handle softmax_scale, nb::handle dtype, nb::handle stream) {
  OperationCall call(q, "q", stream, input_dtype_of(dtype, "dtype"));
  ListMassArguments arguments;
  call.read(q, "q", arguments.q);
  call.check_dtype(arguments.q, "q");
  call.read(k, "k", arguments.k);
  call.read(lse, "lse", arguments.lse);
  call.read(indices, "indices", arguments.indices);
  call.read(counts, "counts", arguments.counts);
  arguments.softmax_scale = scale_of(softmax_scale);
  for (const auto& [name, view] : {std::pair{"q", &arguments.q}, std::pair{"k", &arguments.k}})
    if (view->rank != 3)
      refuse(name, fmt::format("has {} dimensions; it must be ({}, heads, head_dim)", view->rank,
                               view == &arguments.q ? "tokens" : "keys"));
  const std::int64_t heads_q = arguments.q.shape[1], heads_kv = arguments.k.shape[1];
  if (heads_kv == 0 || heads_q == 0 || heads_q % heads_kv != 0)
    refuse("q", fmt::format("has {} heads; they must be a multiple of k's {}", heads_q, heads_kv));
  ListMassSpec spec{.dtype = arguments.q.dtype, .head_dim = small_size(arguments.q, 2, "q")};
  spec.heads = static_cast<int>(std::min<std::int64_t>(heads_q / heads_kv, std::int64_t{1} << 30));
  try {
    validate(spec);
    if (arguments.indices.rank != 3) check_arguments(spec, arguments);
    const std::size_t made =
        call.make(DType::fp32, std::span(arguments.indices.shape).first<3>(), arguments.mass);
    call.stage([&] { check_arguments(spec, arguments); });
    call.launch([&](const Context& context) { list_mass(spec, context)(arguments, call.stream()); });
    return call.result(made);
  } catch (const Error& error) {
    throw renamed_field(error, {{"dtype", "q"}, {"heads", "q"}, {"head_dim", "q"}});
  }
}

}  // namespace

void bind_list_mass(nb::module_& module) {
  module.def("_list_mass", list_mass_of, "q"_a, "k"_a, "lse"_a, "indices"_a, "counts"_a = nb::none(),
             nb::kw_only(), "softmax_scale"_a = nb::none(), "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
