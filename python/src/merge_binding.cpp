#include "merge_binding.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <string>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>
#include <jit/merge.h>

#include "argument_names.h"
#include "array.h"
#include "given.h"
#include "operation_call.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

bool is_sequence(nb::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

std::size_t dimensions(nb::handle array) {
  return nb::hasattr(array, "shape") ? nb::len(nb::object(array.attr("shape"))) : 0;
}

std::vector<nb::object> items_of(nb::handle list) {
  std::vector<nb::object> items;
  for (std::size_t i = 0; i < nb::len(list); ++i) items.push_back(nb::borrow(list)[nb::int_(i)]);
  return items;
}

// Shapes of the result's o and lse, from the first part's.
struct ResultShape {
  std::vector<std::int64_t> o, lse;
};
ResultShape result_shape(const TensorView& o, bool is_stack) {
  ResultShape shape;
  shape.o.assign(o.shape + (is_stack ? 1 : 0), o.shape + o.rank);
  if (shape.o.size() != 3 && shape.o.size() != 4) {
    refuse(
        "outs",
        fmt::format("has {} dimensions; partial outputs are (tokens, heads, head_dim_v) or (batch, seqlen, "
                    "heads, head_dim_v)",
                    shape.o.size()));
  }
  const std::size_t heads = shape.o.size() - 2;
  if (heads == 2) shape.lse.push_back(shape.o[0]);
  shape.lse.push_back(shape.o[heads]);
  shape.lse.push_back(shape.o[heads - 1]);
  return shape;
}

// "parts[1].lse" as the caller knows it: lses[1].
Error renamed(const Error& error, bool is_list) {
  if (error.code() != ErrorCode::invalid_argument) return error;
  const std::string& field = error.field();
  std::string name = field == "o" ? "out" : field == "lse" ? "out_lse" : field == "parts" ? "outs" : field;
  if (field.starts_with("parts[")) {
    const bool is_lse = field.ends_with(".lse");
    name = is_lse ? "lses" : "outs";
    if (is_list) name += field.substr(5, field.find(']') - 4);
  }
  std::string message = error.message();
  if (message.starts_with(field + ":")) message = name + message.substr(field.size());
  return Error(error.code(), error.stage(), name, message);
}

nb::object merge_arrays(nb::handle outs, nb::handle lses, nb::handle out, nb::handle out_lse,
                        nb::handle out_dtype, nb::handle dtype, nb::handle stream) {
  // A stack of (batch, seqlen, heads, head_dim_v) has five dimensions, more than a view: it is passed as
  // slices.
  const bool is_list = is_sequence(outs) || dimensions(outs) == 5;
  const std::vector<nb::object> o_arrays = is_list ? items_of(outs) : std::vector{nb::borrow(outs)},
                                lse_arrays = is_list ? items_of(lses) : std::vector{nb::borrow(lses)};
  if (o_arrays.empty()) refuse("outs", "is empty; give one partial output or more");
  if (o_arrays.size() != lse_arrays.size())
    refuse("lses", fmt::format("has {} arrays, and outs {}", lse_arrays.size(), o_arrays.size()));
  OperationCall call(o_arrays[0], "outs", stream, dtype_of(dtype, "dtype"));
  std::vector<PartialState> parts(o_arrays.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    call.read(o_arrays[i], "outs", parts[i].o);
    call.read(lse_arrays[i], "lses", parts[i].lse);
  }
  MergeArguments arguments{.parts = parts, .o = {}};
  const ResultShape shape = result_shape(parts[0].o, !is_list && parts[0].o.rank == 4);
  MergeSpec spec{.dtype = parts[0].o.dtype};
  if (!facts(spec.dtype).is_floating())
    refuse("outs", fmt::format("is {}; it must be fp32, bf16 or fp16", to_string(spec.dtype)));
  call.check_dtype(parts[0].o, "outs");
  const std::optional<DType> wanted = float_dtype_of(out_dtype, "out_dtype");
  call.write(out, "out", arguments.o);
  call.write(out_lse, "out_lse", arguments.lse);
  spec.out_dtype = arguments.o.is_present() ? arguments.o.dtype : wanted.value_or(spec.dtype);
  if (wanted && spec.out_dtype != *wanted)
    refuse("out_dtype",
           fmt::format("is {}, but out holds {}", to_string(*wanted), to_string(spec.out_dtype)));
  std::optional<std::size_t> new_o, new_lse;
  if (!arguments.o.is_present()) new_o = call.make(spec.out_dtype, shape.o, arguments.o);
  if (!arguments.lse.is_present()) new_lse = call.make(DType::fp32, shape.lse, arguments.lse);
  spec.head_dim_v = small_size(parts[0].o, parts[0].o.rank - 1, "outs");
  spec.alignment = common_alignment({&arguments.o});
  for (const PartialState& part : parts)
    spec.alignment = std::min(spec.alignment, common_alignment({&part.o}));
  spec.alignment = std::max(2, spec.alignment);
  spec.views = static_cast<int>(std::bit_ceil(std::clamp<std::size_t>(parts.size(), 2, 32)));
  try {
    call.stage([&] { check_arguments(spec, arguments); });
    call.launch([&](const Context& context) { merge(spec, context)(arguments, call.stream()); });
  } catch (const Error& error) {
    throw renamed_field(
        renamed(error, is_list),
        {{"dtype", "outs"}, {"head_dim_v", "outs"}, {"alignment", "outs"}, {"views", "outs"}});
  }
  return nb::make_tuple(new_o ? call.result(*new_o) : nb::borrow(out),
                        new_lse ? call.result(*new_lse) : nb::borrow(out_lse));
}

}  // namespace

void bind_merge(nb::module_& module) {
  define(module, "merge", merge_arrays, "outs"_a, "lses"_a, nb::kw_only(), "out"_a = nb::none(),
         "out_lse"_a = nb::none(), "out_dtype"_a = nb::none(), "dtype"_a = nb::none(),
         "stream"_a = nb::none());
}

}  // namespace jit::python
