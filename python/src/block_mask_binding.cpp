#include "block_mask_binding.h"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/attention.h>
#include <jit/block_mask.h>
#include <jit/device.h>

#include "given.h"
#include "named_arrays.h"
#include "operation_call.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

constexpr std::int64_t unknown = -1;

// Calls a method of a BlockMask; returns None for None.
template <class... Arguments>
nb::object ask(nb::handle block_mask, const char* method, Arguments... arguments) {
  if (block_mask.is_none()) return nb::none();
  if (!nb::hasattr(block_mask, method))
    throw nb::type_error("block_mask must be a jit_attention.BlockMask, or None");
  return nb::getattr(block_mask, method)(arguments...);
}

nb::object make_block_mask(nb::handle like, const std::string& like_name, nb::handle mask, int block_q,
                           int block_kv, std::int64_t batch, std::int64_t heads, std::int64_t heads_q,
                           std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t total_q,
                           std::int64_t total_k, nb::handle tensors, nb::handle blocks, nb::handle counts,
                           nb::handle indptr, nb::handle indices, nb::handle full_counts,
                           nb::handle full_indices, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                           nb::handle seqused_q, nb::handle seqused_k, nb::handle cache_leftpad,
                           std::int64_t room, nb::handle stream) {
  const BlockMaskSpec spec{.mask = mask_of(mask),
                           .block_q = block_q,
                           .block_kv = block_kv,
                           .varlen_q = !cu_seqlens_q.is_none(),
                           .varlen_kv = !cu_seqlens_k.is_none(),
                           .scores = room > 0};
  validate(spec);
  OperationCall call(like, like_name.c_str(), stream, std::nullopt);
  BlockMaskArguments arguments{.block_mask = {},
                               .seqlen_q = seqlen_q,
                               .seqlen_kv = seqlen_k,
                               .heads_q = heads_q,
                               .total_q = total_q,
                               .total_k = total_k};
  call.read(blocks, "blocks", arguments.map);
  call.read(counts, "counts", arguments.partial.counts);
  call.read(indptr, "indptr", arguments.partial.indptr);
  call.read(indices, "indices", arguments.partial.indices);
  call.read(full_counts, "full_counts", arguments.full.counts);
  call.read(full_indices, "full_indices", arguments.full.indices);
  call.read(cu_seqlens_q, "cu_seqlens_q", arguments.cu_seqlens_q);
  call.read(cu_seqlens_k, "cu_seqlens_k", arguments.cu_seqlens_k);
  call.read(seqused_q, "seqused_q", arguments.seqused_q);
  call.read(seqused_k, "seqused_k", arguments.seqused_k);
  call.read(cache_leftpad, "cache_leftpad", arguments.cache_leftpad);
  const NamedArrays named(tensors);
  std::vector<TensorView> views(named.size());
  std::size_t at = 0;
  for (const NamedArray& array : named) call.read(array.object, array.name, views[at++]);
  const auto name_tensors = [&] {
    arguments.tensors = {};
    at = 0;
    for (const NamedArray& array : named) arguments.tensors.add({array.name, views[at++]});
  };
  name_tensors();
  const std::array<std::int64_t, 4> shape = block_mask_shape(spec, batch, heads, seqlen_q, seqlen_k);
  const std::size_t table = call.make(DType::int32, shape, arguments.block_mask);
  std::size_t places = 0, scores = 0;
  if (spec.scores) {
    places = call.make(DType::int32, block_places_shape(spec, batch, heads, seqlen_q, seqlen_k),
                       arguments.block_places);
    scores = call.make(DType::int32, block_scores_shape(spec, batch, heads, room), arguments.block_scores);
  }
  call.stage([&] { check_arguments(spec, arguments); });
  name_tensors();
  call.launch([&](const Context& context) { block_mask(spec, context)(arguments, call.stream()); });
  if (!spec.scores) return nb::make_tuple(call.result(table));
  return nb::make_tuple(call.result(table), call.result(places), call.result(scores));
}

}  // namespace

GivenBlockMask::GivenBlockMask(nb::handle block_mask, nb::handle mask, nb::handle score, nb::handle tensors)
    : GivenBlockMask(block_mask, mask, tensors, ask(block_mask, "_for_call", mask, score, tensors)) {}

GivenBlockMask GivenBlockMask::for_prepared(nb::handle block_mask, nb::handle spec, nb::handle tensors) {
  return {block_mask, spec, tensors, ask(block_mask, "_for_prepared", spec, tensors)};
}

GivenBlockMask GivenBlockMask::for_gradients(nb::handle block_mask, nb::handle mask, nb::handle score,
                                             nb::handle tensors) {
  return {block_mask, mask, tensors, ask(block_mask, "_for_gradients", mask, score, tensors)};
}

GivenBlockMask::GivenBlockMask(nb::handle block_mask, nb::handle mask, nb::handle tensors, nb::object over)
    : block_mask_(nb::borrow(block_mask)),
      mask_(over.is_none() ? nb::borrow(mask) : nb::object(over[0])),
      tensors_(over.is_none() ? nb::borrow(tensors) : nb::object(over[1])) {}

void GivenBlockMask::check(const Sizes& sizes) const {
  const bool varlen_q = sizes.cu_seqlens_q.is_present(), varlen_k = sizes.cu_seqlens_k.is_present();
  const TensorView &q = sizes.q, &k = sizes.k;
  const std::int64_t length_k = sizes.page_table.is_present() && sizes.page_table.rank == 2
                                    ? sizes.page_table.shape[1] * k.shape[1]
                                    : k.shape[1];
  block_mask_.attr("_check")(varlen_q ? unknown : q.shape[1], varlen_k ? unknown : length_k,
                             varlen_q ? sizes.cu_seqlens_q.shape[0] - 1 : q.shape[0], q.shape[q.rank - 2],
                             sizes.lengths);
}

nb::object spec_over(nb::handle block_mask, nb::handle spec) { return ask(block_mask, "_spec_over", spec); }

void bind_block_mask(nb::module_& module) {
  module.attr("most_tensors") = NamedTensors::capacity;
  module.def(
      "device_of",
      [](nb::handle like, const std::string& name) {
        return device_info(OperationCall(like, name.c_str(), nb::none(), std::nullopt).device());
      },
      "like"_a, "name"_a, "The Device where calls with such an array compute; errors call it `name`.");
  define(module, "make_block_mask", make_block_mask, "like"_a, nb::kw_only(), "like_name"_a, "mask"_a.none(),
         "block_q"_a, "block_kv"_a, "batch"_a, "heads"_a, "heads_q"_a, "seqlen_q"_a, "seqlen_k"_a,
         "total_q"_a = 0, "total_k"_a = 0, "tensors"_a = nb::none(), "blocks"_a = nb::none(),
         "counts"_a = nb::none(), "indptr"_a = nb::none(), "indices"_a = nb::none(),
         "full_counts"_a = nb::none(), "full_indices"_a = nb::none(), "cu_seqlens_q"_a = nb::none(),
         "cu_seqlens_k"_a = nb::none(), "seqused_q"_a = nb::none(), "seqused_k"_a = nb::none(),
         "cache_leftpad"_a = nb::none(), "room"_a = 0, "stream"_a = nb::none(),
         "(the table of a BlockMask, of the framework of `like`, which errors call `like_name`), with "
         "room for the "
         "scores of blocks also their places and bits.");
}

}  // namespace jit::python
