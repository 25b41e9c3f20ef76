#include "generator/plan/array_check.h"

#include <cstdint>
#include <memory>
#include <string>

#include <jit/device.h>
#include <jit/error.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/loaded_kernel.h"
#include "generator/launch/memory_sizes.h"
#include "generator/plan/plan.h"
#include "generator/program/emit.h"
#include "runtime/capture.h"
#include "runtime/launch.h"

namespace jit {
namespace {

// Runs a check, and throws what it has recorded.
void run_check(KernelStore& store, const Program& program, std::int64_t blocks, const AttentionParams& params,
               int device, Stream stream) {
  auto image = build_image(store, program, native_target(device_info(device)));
  const Kernel kernel = load_module(store, image).kernel(program.name);
  const std::unique_ptr<const DeviceBuffer> slot = make_filled(device, sizeof(ArrayFault), 0);
  AttentionParams given = params;
  void* address = slot->data();
  void* arguments[] = {&given, &address};
  launch(kernel.handle(),
         {.grid = {static_cast<unsigned>(blocks), 1, 1},
          .block = {static_cast<unsigned>(program.threads), 1, 1}},
         arguments, stream);
  ArrayFault fault{};
  slot->download(&fault, sizeof fault, 0, stream);
  if (fault.array == SequenceArrayId::none) return;
  const FaultText found = fault_text(fault);
  throw Error(ErrorCode::invalid_argument, "launch", std::string(found.array), found.text);
}

}  // namespace

void check_arrays(KernelStore& store, const AttentionSpec& spec, const AttentionParams& params, int device,
                  Stream stream) {
  if (is_capturing(stream)) return;
  if (has_positions(spec)) {
    const Program program = emit_position_check(spec);
    run_check(store, program, ceil_div(params.batch, program.threads), params, device, stream);
  }
  if (reads_tree(spec.mask)) run_check(store, emit_tree_check(spec), params.batch, params, device, stream);
}

}  // namespace jit
