#include "score_keys_binding.h"

#include <array>
#include <string>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/score_keys.h>

#include "argument_names.h"
#include "given.h"
#include "operation_call.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

nb::object score_keys_of(nb::handle q, nb::handle k, nb::handle weights, nb::handle k_scale,
                         nb::handle starts, nb::handle ends, nb::handle page_table, nb::handle out,
                         nb::handle block_out, nb::handle dtype, nb::handle stream) {
  OperationCall call(weights, "weights", stream, input_dtype_of(dtype, "dtype"));
  ScoreKeysArguments arguments;
  call.read(q, "q", arguments.q);
  call.read(k, "k", arguments.k);
  call.read(weights, "weights", arguments.weights);
  call.read(k_scale, "k_scale", arguments.k_scale);
  call.read(starts, "starts", arguments.starts);
  call.read(ends, "ends", arguments.ends);
  call.read(page_table, "page_table", arguments.page_table);
  call.write(out, "out", arguments.scores);
  call.write(block_out, "block_out", arguments.block_scores);
  const bool is_paged = arguments.page_table.is_present();
  if (arguments.q.rank != 3)
    refuse("q", fmt::format("has {} dimensions; it must be (tokens, heads, head_dim)", arguments.q.rank));
  if (arguments.k.rank != (is_paged ? 3 : 2))
    refuse("k", fmt::format(
                    "has {} dimensions; it must be (keys, head_dim), or with page_table (pages, page_size, "
                    "head_dim)",
                    arguments.k.rank));
  if (is_paged && arguments.page_table.rank != 2)
    refuse("page_table",
           fmt::format("has {} dimensions; it must be (entries, pages)", arguments.page_table.rank));

  const ScoreKeysSpec spec{.dtype = arguments.q.dtype,
                           .heads = small_size(arguments.q, 1, "q"),
                           .head_dim = small_size(arguments.q, 2, "q"),
                           .page_size = is_paged ? small_size(arguments.k, 1, "k") : 0,
                           .k_scale = arguments.k_scale.is_present(),
                           .block_max = arguments.block_scores.is_present()};
  try {
    validate(spec);
    std::optional<std::size_t> made;
    if (!arguments.scores.is_present()) {
      const std::int64_t keys =
          is_paged ? arguments.page_table.shape[1] * arguments.k.shape[1] : arguments.k.shape[0];
      const std::array<std::int64_t, 2> shape = {arguments.q.shape[0], keys};
      made = call.make(DType::fp32, shape, arguments.scores);
    }
    call.stage([&] { check_arguments(spec, arguments); });
    call.launch([&](const Context& context) { score_keys(spec, context)(arguments, call.stream()); });
    return made ? call.result(*made) : nb::borrow(out);
  } catch (const Error& error) {
    throw renamed_field(renamed_argument(error, {{"scores", "out"}, {"block_scores", "block_out"}}),
                        {{"dtype", "q"}, {"heads", "q"}, {"head_dim", "q"}, {"page_size", "k"}});
  }
}

}  // namespace

void bind_score_keys(nb::module_& module) {
  define(module, "score_keys", score_keys_of, "q"_a, "k"_a, "weights"_a, nb::kw_only(),
         "k_scale"_a = nb::none(), "starts"_a = nb::none(), "ends"_a = nb::none(),
         "page_table"_a = nb::none(), "out"_a = nb::none(), "block_out"_a = nb::none(),
         "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
