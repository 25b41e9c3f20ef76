#include "key_union_binding.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <jit/key_union.h>

#include "argument_names.h"
#include "array.h"
#include "operation_call.h"

namespace jit::python {
namespace {

using namespace nb::literals;

nb::tuple key_union_of(nb::handle indices, nb::handle counts, int queries, std::int64_t limit,
                       nb::handle stream) {
  OperationCall call(indices, "indices", stream, {});
  KeyUnionArguments arguments;
  arguments.limit = limit;
  call.read(indices, "indices", arguments.indices);
  call.read(counts, "counts", arguments.counts);
  const KeyUnionSpec spec{.queries = queries};
  validate(spec);
  if (arguments.indices.rank != 3) check_arguments(spec, arguments);
  const auto& shape = arguments.indices.shape;
  const std::array<std::int64_t, 3> sizes = {(shape[0] + queries - 1) / queries, shape[1],
                                             std::max<std::int64_t>(1, std::min(limit, queries * shape[2]))};
  const std::size_t lists = call.make(DType::int32, sizes, arguments.lists),
                    members = call.make(DType::int32, sizes, arguments.members),
                    list_counts = call.make(DType::int32, std::span(sizes).first<2>(), arguments.list_counts);
  call.stage([&] { check_arguments(spec, arguments); });
  call.launch([&](const Context& context) { key_union(spec, context)(arguments, call.stream()); });
  return nb::make_tuple(call.result(lists), call.result(members), call.result(list_counts));
}

}  // namespace

void bind_key_union(nb::module_& module) {
  module.def("_key_union", key_union_of, "indices"_a, "counts"_a = nb::none(), nb::kw_only(), "queries"_a = 8,
             "limit"_a, "stream"_a = nb::none());
}

}  // namespace jit::python
