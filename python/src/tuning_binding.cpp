#include "tuning_binding.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/tuning.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "named_arrays.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

nb::dict tune_sizes(nb::handle spec_object, std::int64_t batch, std::int64_t heads_q, std::int64_t seqlen_q,
                    std::int64_t seqlen_kv, nb::handle tensors, int device, bool exhaustive) {
  const AttentionSpec spec = spec_of(spec_object);
  AttentionArguments arguments = sized_arguments(
      spec, {.batch = batch, .heads_q = heads_q, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv});
  use_device_here();
  if (device_info(device).emulated)
    refuse("device", "is emulated, and has no time to measure; tuning wants a GPU");
  const Context& context = context_for(exhaustive ? TuningMode::exhaustive : TuningMode::first_run);

  const NamedArrays arrays(tensors);
  std::vector<Array> read;  // keeps what was exported
  for (const NamedArray& named : arrays) {
    const GivenArray given(named.object, named.name);
    const dlpack::Device place = device_of(given);
    Array array = import_array(given, place, current_stream(given.framework, place));
    if (!array.on_gpu() || array.device.id != device)
      refuse(named.name, fmt::format("is in {}; it must be on GPU {}", to_string(array.device), device));
    arguments.tensors.add({named.name, array.view});
    read.push_back(std::move(array));
  }
  const TuningResult result = without_lock([&] {
    const CurrentDevice scope(device);
    return tune(spec, arguments, context);
  });
  nb::dict report;
  report["config"] = config_as_dict(result.config);
  report["median_us"] = result.median_us;
  report["default_us"] = result.default_us;
  report["candidates"] = result.candidates;
  report["out_of_time"] = result.out_of_time;
  report["log"] = result.log;
  return report;
}

constexpr const char* tune_doc =
    R"(Measure configs for a spec at these sizes and record the fastest, for this and later processes.

Args:
    spec: an AttentionSpec.
    batch, heads_q, seqlen_q, seqlen_kv: sizes of the calls to come; those of the same powers of two share the result.
    tensors: arrays that mask and score read: their contents decide which tiles are computed.
    device: ordinal of the GPU.
    exhaustive: measure every legal config, however long it takes.

Returns a dict: config, median_us (of it), default_us (of the cost model's), candidates (measured), out_of_time, log.
Raises InvalidArgumentError, also for an emulated device, and what compiling raises.
)";

}  // namespace

void bind_tuning(nb::module_& module) {
  module.def("tune", tune_sizes, "spec"_a, nb::kw_only(), "batch"_a, "heads_q"_a, "seqlen_q"_a, "seqlen_kv"_a,
             "tensors"_a = nb::none(), "device"_a = 0, "exhaustive"_a = false, tune_doc);
}

}  // namespace jit::python
