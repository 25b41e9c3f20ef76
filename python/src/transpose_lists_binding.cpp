#include "transpose_lists_binding.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <jit/transpose_lists.h>

#include "given.h"
#include "operation_call.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// The most entries of an array, so that no size overflows.
constexpr std::int64_t most = std::int64_t{1} << 31;

nb::object transpose_lists_of(nb::handle indices, nb::handle counts, std::int64_t limit, nb::handle stream) {
  OperationCall call(indices, "indices", stream, {});
  TransposeListsArguments arguments;
  arguments.limit = limit;
  call.read(indices, "indices", arguments.indices);
  call.read(counts, "counts", arguments.counts);
  const auto& shape = arguments.indices.shape;
  const bool has_sizes = arguments.indices.rank == 3 && limit >= 0 && limit < most &&
                         (shape[2] == 0 || shape[0] < most / shape[2]);
  if (!has_sizes) check_arguments(arguments);
  const std::array<std::int64_t, 2> starts_shape = {shape[1], limit + 1},
                                    places_shape = {shape[1], shape[0] * shape[2]};
  const std::size_t starts = call.make(DType::int32, starts_shape, arguments.starts),
                    places = call.make(DType::int32, places_shape, arguments.places);
  call.stage([&] { check_arguments(arguments); });
  call.launch([&](const Context& context) { transpose_lists(context)(arguments, call.stream()); });
  return nb::make_tuple(call.result(starts), call.result(places));
}

}  // namespace

void bind_transpose_lists(nb::module_& module) {
  define(module, "transpose_lists", transpose_lists_of, "indices"_a, "counts"_a = nb::none(), nb::kw_only(),
         "limit"_a, "stream"_a = nb::none());
}

}  // namespace jit::python
