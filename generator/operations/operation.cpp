#include "generator/operations/operation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <jit/device.h>
#include <jit/error.h>
#include <jit/spec.h>

#include "generator/build/image.h"
#include "generator/context/context_state.h"
#include "runtime/capture.h"
#include "runtime/launch.h"

namespace jit {
namespace {

Digest loaded_key(int device, OperationProgram program) {
  const auto both = static_cast<std::uint64_t>(device) * 3 + static_cast<std::uint64_t>(program);
  return {.high = both, .low = both};
}

}  // namespace

const OperationState* find_operation(ContextState& context, std::span<const std::uint64_t> words) {
  const auto has_words = [&](const OperationState& state) {
    return std::ranges::equal(state.spec_words, words);
  };
  if (const OperationState* recent = context.recent_operations.find(has_words)) return recent;
  const OperationState* known = context.operations.find(digest(std::as_bytes(words)));
  if (known != nullptr) context.recent_operations.add(known);
  return known;
}

const OperationState* new_operation(ContextState& context, std::span<const std::uint64_t> words,
                                    OperationPrograms programs) {
  auto fresh = std::make_unique<const OperationState>(context, words, std::move(programs));
  prepared_kernel(*fresh);
  return context.operations.insert(digest(std::as_bytes(words)), std::move(fresh));
}

const LoadedKernel& prepared_kernel(const OperationState& state, OperationProgram wanted) {
  const int device = current_device();
  const Digest key = loaded_key(device, wanted);
  if (const LoadedKernel* known = state.loaded.find(key)) return *known;
  const std::lock_guard lock(state.loading);
  if (const LoadedKernel* known = state.loaded.find(key)) return *known;
  const RelaxedCapture relaxed;
  const DeviceInfo info = device_info(device);
  // A default spec can only be rejected for its architecture.
  if (const std::vector<Refusal> refusals = refusals_of(AttentionSpec(), info); !refusals.empty()) {
    throw Error(ErrorCode::unsupported_device, "validate", refusals[0].field,
                fmt::format("{} cannot run this: {}", to_string(info.arch), refusals[0].to_string()));
  }
  auto image = build_image(state.context, state.program(wanted), native_target(info));
  return *state.loaded.insert(
      key, std::make_unique<const LoadedKernel>(load_kernel(state.context, std::move(image), device)));
}

const LoadedKernel* faster_kernel(const OperationState& state, OperationProgram wanted) {
  std::atomic<bool>& lacks = state.lacks[static_cast<std::size_t>(wanted)];
  if (lacks) return nullptr;
  try {
    return &prepared_kernel(state, wanted);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::offline && error.code() != ErrorCode::nvrtc_unavailable) throw;
    lacks = true;
    return nullptr;
  }
}

void check_has_wgmma(std::string_view operation) {
  const Arch arch = native_arch(device_info(current_device()));
  if (arch == Arch{9, 0, 'a'}) return;
  throw Error(ErrorCode::unsupported_device, "validate", "device",
              fmt::format("{} cannot run this: {} multiplies by wgmma, which sm_90a has", to_string(arch),
                          operation));
}

const LoadedKernel& kernel_for_launch(const OperationState& state, int device, Stream stream,
                                      OperationProgram wanted) {
  if (const LoadedKernel* known = state.loaded.find(loaded_key(device, wanted))) return *known;
  const bool has_other = wanted != OperationProgram::every_size;
  if (is_capturing(stream)) {
    if (has_other) return kernel_for_launch(state, device, stream);
    throw Error(
        ErrorCode::not_prepared, "launch", "stream",
        fmt::format("the stream is being captured and {} is not loaded on device {}: call prepare() there "
                    "before the capture begins",
                    state.program(wanted).name, device));
  }
  if (!has_other) return prepared_kernel(state);
  const LoadedKernel* const faster = faster_kernel(state, wanted);
  return faster != nullptr ? *faster : prepared_kernel(state);
}

void launch_operation(const LoadedKernel& kernel, std::array<unsigned, 2> blocks, void* params, Stream stream,
                      bool cooperative) {
  void* parameters[] = {params};
  launch(kernel.kernel.handle(),
         {.grid = {blocks[0], blocks[1], 1},
          .block = {kernel.threads, 1, 1},
          .smem_bytes = kernel.smem_bytes,
          .dependent = !cooperative && kernel.image->target.arch.major >= 9,
          .cooperative = cooperative},
         parameters, stream);
}

}  // namespace jit
