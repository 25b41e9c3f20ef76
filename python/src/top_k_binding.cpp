#include "top_k_binding.h"

#include <array>
#include <string>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/top_k.h>

#include "argument_names.h"
#include "given.h"
#include "operation_call.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// Converts (rows, …) to (rows, 1, …): one list per row.
TensorView with_head(const TensorView& view, bool has_heads) {
  if (has_heads || !view.is_present() || view.rank == max_rank) return view;
  TensorView wide = view;
  ++wide.rank;
  wide.shape[1] = 1;
  wide.strides[1] = 0;
  for (int i = 1; i < view.rank; ++i) {
    wide.shape[i + 1] = view.shape[i];
    wide.strides[i + 1] = view.strides[i];
  }
  return wide;
}

nb::object top_k_of(nb::handle scores, int k, nb::handle starts, nb::handle ends, int init_blocks,
                    int local_blocks, nb::handle page_table, int page_size, nb::handle out,
                    nb::handle out_counts, nb::handle dtype, nb::handle stream) {
  OperationCall call(scores, "scores", stream, input_dtype_of(dtype, "dtype"));
  TopKArguments arguments;
  call.read(scores, "scores", arguments.scores);
  call.check_dtype(arguments.scores, "scores");
  call.read(starts, "starts", arguments.starts);
  call.read(ends, "ends", arguments.ends);
  call.read(page_table, "page_table", arguments.page_table);
  call.write(out, "out", arguments.indices);
  call.write(out_counts, "out_counts", arguments.counts);
  const int rank = arguments.scores.rank;
  if (rank != 2 && rank != 3)
    refuse("scores",
           fmt::format("has {} dimensions; it must be (rows, columns) or (rows, heads, columns)", rank));
  const bool has_heads = rank == 3;
  const TopKSpec spec{.dtype = arguments.scores.dtype,
                      .k = k,
                      .init_blocks = init_blocks,
                      .local_blocks = local_blocks,
                      .page_size = page_size};
  const auto named = [](const Error& error) {
    return renamed_field(renamed_argument(error, {{"indices", "out"}, {"counts", "out_counts"}}),
                         {{"dtype", "scores"}});
  };
  try {
    validate(spec);
    std::optional<std::size_t> new_indices, new_counts;
    const std::int64_t* const shape = arguments.scores.shape;
    const std::array<std::int64_t, 3> of_heads = {shape[0], shape[1], k};
    const std::array<std::int64_t, 2> of_rows = {shape[0], k};
    using Sizes = std::span<const std::int64_t>;
    const Sizes sizes = has_heads ? Sizes(of_heads) : Sizes(of_rows);
    if (!arguments.indices.is_present()) new_indices = call.make(DType::int32, sizes, arguments.indices);
    if (!arguments.counts.is_present())
      new_counts = call.make(DType::int32, sizes.first(sizes.size() - 1), arguments.counts);
    const auto given = [&] {
      TopKArguments all = arguments;
      all.scores = with_head(arguments.scores, has_heads);
      // One of too many dimensions stays so, and is refused.
      if (arguments.indices.rank == rank) all.indices = with_head(arguments.indices, has_heads);
      if (arguments.counts.rank == rank - 1) all.counts = with_head(arguments.counts, has_heads);
      return all;
    };
    call.stage([&] { check_arguments(spec, given()); });
    call.launch([&](const Context& context) { top_k(spec, context)(given(), call.stream()); });
    return nb::make_tuple(new_indices ? call.result(*new_indices) : nb::borrow(out),
                          new_counts ? call.result(*new_counts) : nb::borrow(out_counts));
  } catch (const Error& error) {
    throw named(error);
  }
}

}  // namespace

void bind_top_k(nb::module_& module) {
  define(module, "top_k", top_k_of, "scores"_a, "k"_a, nb::kw_only(), "starts"_a = nb::none(),
         "ends"_a = nb::none(), "init_blocks"_a = 0, "local_blocks"_a = 0, "page_table"_a = nb::none(),
         "page_size"_a = 0, "out"_a = nb::none(), "out_counts"_a = nb::none(), "dtype"_a = nb::none(),
         "stream"_a = nb::none());
}

}  // namespace jit::python
