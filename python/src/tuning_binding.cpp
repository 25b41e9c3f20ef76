#include "tuning_binding.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/tuning.h>

#include "array.h"
#include "given.h"
#include "named_arrays.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

nb::dict tune_sizes(nb::handle spec_object, std::int64_t batch, std::int64_t heads_q, std::int64_t seqlen_q,
                    std::int64_t seqlen_kv, nb::handle tensors, int device, bool exhaustive, bool backward,
                    bool deterministic) {
  const AttentionSpec spec = spec_of(spec_object);
  const AttentionShape shape{
      .batch = batch, .heads_q = heads_q, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv};
  if (deterministic && !backward)
    refuse("deterministic", "is True; it is of gradients: backward must be True, too");
  // Refuse invalid specs and sizes before searching for a device.
  backward ? void(sized_backward_arguments(spec, shape)) : void(sized_arguments(spec, shape));
  use_device_here();
  if (device_info(device).emulated)
    refuse("device", "is emulated, and has no time to measure; tuning wants a GPU");
  const Context& context = context_for(exhaustive ? TuningMode::exhaustive : TuningMode::first_run);

  const NamedArrays arrays(tensors);
  NamedTensors named_tensors;
  std::vector<Array> read;  // keeps exported arrays alive
  for (const NamedArray& named : arrays) {
    const GivenArray given(named.object, named.name);
    const dlpack::Device place = device_of(given);
    Array array = import_array(given, place, current_stream(given.framework, place));
    if (!array.on_gpu() || array.device.id != device)
      refuse(named.name, fmt::format("is in {}; it must be on GPU {}", to_string(array.device), device));
    named_tensors.add({named.name, array.view});
    read.push_back(std::move(array));
  }
  const TuningResult result = without_lock([&] {
    const CurrentDevice scope(device);
    if (!backward) return tune(spec, sized_arguments(spec, shape, named_tensors), context);
    BackwardArguments arguments = sized_backward_arguments(spec, shape, named_tensors);
    arguments.deterministic = deterministic;
    return tune(spec, arguments, context);
  });
  nb::list configs;
  for (const KernelConfig& config : result.configs) configs.append(config_as_dict(config));
  nb::dict report;
  report["configs"] = configs;
  report["median_us"] = result.median_us;
  report["default_us"] = result.default_us;
  report["candidates"] = result.candidates;
  report["out_of_time"] = result.out_of_time;
  report["log"] = result.log;
  return report;
}

}  // namespace

void bind_tuning(nb::module_& module) {
  define(module, "tune", tune_sizes, "spec"_a, nb::kw_only(), "batch"_a, "heads_q"_a, "seqlen_q"_a,
         "seqlen_kv"_a, "tensors"_a = nb::none(), "device"_a = 0, "exhaustive"_a = false,
         "backward"_a = false, "deterministic"_a = false);
}

}  // namespace jit::python
