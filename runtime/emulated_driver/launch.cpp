// Launches of kernels, and their occupancy.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>

#include <emulator/launch.h>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/interrupts.h"
#include "runtime/emulated_driver/limits.h"
#include "runtime/emulated_driver/machine.h"
#include "runtime/emulated_driver/trace.h"

namespace jit::emulated_driver {
namespace {

// Number of findings in the text of an error.
constexpr std::size_t told_findings = 8;

struct LaunchRequest {
  CUfunction function = nullptr;
  Device& device;
  emulator::LaunchShape shape;
  std::vector<std::byte> parameters;
};

// Registers are allocated per warp, in units of 8 per thread.
int blocks_by_registers(const emulator::Function& kernel, int warps, const DeviceProperties& properties) {
  const int registers = std::max(kernel.register_estimate(), 1);
  const int of_block = (registers + 7) / 8 * 8 * 32 * warps;
  return properties.registers_per_sm / of_block;
}

// Occupancy: blocks per SM.
int blocks_per_sm(const emulator::Function& kernel, int block_threads, std::size_t dynamic_smem,
                  const DeviceProperties& properties) {
  const int warps = (block_threads + 31) / 32;
  const std::size_t smem = kernel.static_smem_bytes() + dynamic_smem;
  const int by_smem = properties.smem_per_sm / (static_cast<int>(smem) + reserved_smem_bytes);
  return std::min({properties.blocks_per_sm, properties.threads_per_sm / (warps * 32), by_smem,
                   blocks_by_registers(kernel, warps, properties)});
}

// Blocks of a launch that are resident on the device at once, at least one per SM.
std::uint64_t resident_blocks(const emulator::Function& kernel, const emulator::LaunchShape& shape,
                              const DeviceProperties& properties) {
  const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
  if (threads == 0 || threads > static_cast<unsigned>(max_block_threads)) return 0;  // the launch will fail
  const int each = blocks_per_sm(kernel, static_cast<int>(threads), shape.dynamic_smem_bytes, properties);
  return static_cast<std::uint64_t>(properties.sm_count) * static_cast<std::uint64_t>(std::max(each, 1));
}

emulator::LaunchOptions options_of(const LaunchRequest& request, const emulator::Function& kernel) {
  emulator::LaunchOptions options;
  options.seed = machine().seed;
  options.step_limit = machine().step_limit;
  options.resident_blocks = resident_blocks(kernel, request.shape, request.device.properties);
  options.blocks_per_multiprocessor = static_cast<int>(
      options.resident_blocks / static_cast<std::uint64_t>(request.device.properties.sm_count));
  options.smem_limit = static_cast<std::size_t>(request.device.properties.smem_per_block_optin);
  return options;
}

void run(const LaunchRequest& request, emulator::GridsInFront& in_front) {
  // Finds the entry again, because a graph may run after its library was unloaded.
  const std::shared_ptr<LoadedEntry> entry = find_entry(request.function);
  const emulator::Function kernel = entry->code(request.device);
  entry->library->make_variables(request.device);
  emulator::LaunchOptions options = options_of(request, kernel);
  options.is_interrupted = interrupt_check();
  emulator::LaunchResult result;
  try {
    result = emulator::launch(kernel, request.shape, request.parameters, request.device.memory, options,
                              &in_front);
  } catch (const std::invalid_argument& error) {
    fail(CUDA_ERROR_INVALID_VALUE, error.what());
  } catch (const emulator::LaunchInterrupted& error) {
    fail(CUDA_ERROR_LAUNCH_FAILED, error.what());
  }
  const std::string failure = result.findings.empty() ? "" : describe(result.findings);
  trace_launch(kernel, request.shape, std::move(result));
  if (!failure.empty()) fail(CUDA_ERROR_LAUNCH_FAILED, failure);
}

// Checks that all blocks of a cooperative launch fit on the device at once.
void check_that_all_fit(const emulator::Function& kernel, const emulator::LaunchShape& shape,
                        const Device& device) {
  const std::uint64_t blocks = std::uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  const std::uint64_t most = resident_blocks(kernel, shape, device.properties);
  if (blocks > most) {
    fail(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
         "a cooperative launch has " + std::to_string(blocks) + " blocks; " + device.name() + " runs " +
             std::to_string(most) + " of this kernel at the same time");
  }
}

void apply_attribute(const CUlaunchAttribute& attribute, const Device& device, emulator::LaunchShape& shape) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      if (device.arch.major < 9) {
        fail(CUDA_ERROR_NOT_SUPPORTED, device.name() + " has no clusters: they come with sm_90");
      }
      shape.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                       attribute.value.clusterDim.z};
      return;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      shape.dependent = attribute.value.programmaticStreamSerializationAllowed != 0;
      return;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape.cooperative = attribute.value.cooperative != 0;
      return;
    // Ignored hints.
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return;
    default:
      fail(CUDA_ERROR_NOT_SUPPORTED, "an emulated device does not know launch attribute " +
                                         std::to_string(static_cast<int>(attribute.id)));
  }
}

emulator::LaunchShape shape_of(const CUlaunchConfig& config, const LoadedEntry& entry, const Device& device) {
  const emulator::Function kernel = entry.code(device);
  emulator::LaunchShape shape{.grid = {config.gridDimX, config.gridDimY, config.gridDimZ},
                              .block = {config.blockDimX, config.blockDimY, config.blockDimZ},
                              .dynamic_smem_bytes = config.sharedMemBytes};
  const int most = entry.dynamic_smem_limit(device);
  if (config.sharedMemBytes > static_cast<unsigned>(most)) {
    fail(CUDA_ERROR_INVALID_VALUE, "sharedMemBytes is " + std::to_string(config.sharedMemBytes) + "; " +
                                       entry.name + " may have " + std::to_string(most) +
                                       ", which CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES sets");
  }
  shape.cluster = kernel.cluster();
  if (config.numAttrs > 0) require(config.attrs, "attrs");
  for (unsigned i = 0; i < config.numAttrs; ++i) apply_attribute(config.attrs[i], device, shape);
  if (shape.cooperative) check_that_all_fit(kernel, shape, device);
  return shape;
}

std::vector<std::byte> parameters_of(const emulator::Function& kernel, void* const* arguments) {
  std::vector<std::byte> block(kernel.parameter_bytes());
  if (!kernel.parameters().empty()) require(arguments, "kernelParams");
  for (std::size_t i = 0; i < kernel.parameters().size(); ++i) {
    const emulator::Parameter& parameter = kernel.parameters()[i];
    require(arguments[i], "an element of kernelParams");
    std::memcpy(block.data() + parameter.offset, arguments[i], parameter.bytes);
  }
  return block;
}

// Appends the launch to the queue of a device with peers.
void put(const LaunchRequest& request, const Place& place) {
  const std::shared_ptr<LoadedEntry> entry = find_entry(request.function);
  const emulator::Function kernel = entry->code(request.device);
  entry->library->make_variables(request.device);
  const auto ended = [kernel, shape = request.shape, library = entry->library,
                      note = place.ended()](emulator::LaunchResult result) {
    note(result.findings);
    trace_launch(kernel, shape, std::move(result));
  };
  try {
    place.group.launch(place.queue, kernel, request.shape, request.parameters, options_of(request, kernel),
                       ended);
  } catch (const std::invalid_argument& error) {
    fail(CUDA_ERROR_INVALID_VALUE, error.what());
  }
}

}  // namespace

std::string describe(const std::vector<emulator::Finding>& findings) {
  std::string text = "the emulator found";
  const std::size_t told = std::min(findings.size(), told_findings);
  for (std::size_t i = 0; i < told; ++i) text += (i == 0 ? " " : "; ") + emulator::to_string(findings[i]);
  if (told < findings.size()) text += "; and " + std::to_string(findings.size() - told) + " more";
  const auto is_limit = [](const emulator::Finding& finding) {
    return finding.kind == emulator::FindingKind::step_limit;
  };
  if (std::any_of(findings.begin(), findings.end(), is_limit)) {
    text += "; JIT_ATTENTION_EMULATOR_STEP_LIMIT sets the limit";
  }
  return text;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  return call([&] {
    require(config, "config");
    if (extra) fail(CUDA_ERROR_NOT_SUPPORTED, "an emulated device takes arguments by kernelParams only");
    const std::shared_ptr<LoadedEntry> entry = find_entry(function);
    const std::shared_ptr<Stream> stream = find_stream(config->hStream);
    Device& device = stream->context.device;
    const auto request = std::make_shared<LaunchRequest>(
        LaunchRequest{.function = function,
                      .device = device,
                      .shape = shape_of(*config, *entry, device),
                      .parameters = parameters_of(entry->code(device), arguments)});
    enqueue(*stream, {[request](emulator::GridsInFront& in_front) { run(*request, in_front); },
                      [request](const Place& place) { put(*request, place); }});
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_threads,
                                                     std::size_t dynamic_smem) {
  return call([&] {
    require(blocks, "numBlocks");
    const Device& device = current_context().device;
    const DeviceProperties& properties = device.properties;
    const emulator::Function kernel = find_entry(function)->code(device);
    const int most = std::min(kernel.max_threads(), max_block_threads);
    if (block_threads < 1) fail(CUDA_ERROR_INVALID_VALUE, "blockSize must be above 0");
    const std::size_t smem = kernel.static_smem_bytes() + dynamic_smem;
    if (block_threads > most || smem > static_cast<std::size_t>(properties.smem_per_block_optin)) {
      *blocks = 0;
      return;
    }
    *blocks = blocks_per_sm(kernel, block_threads, dynamic_smem, properties);
  });
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig* config) {
  return call([&] {
    require(clusters, "numClusters");
    require(config, "config");
    const Device& device = current_context().device;
    const std::shared_ptr<LoadedEntry> entry = find_entry(function);
    const emulator::LaunchShape shape = shape_of(*config, *entry, device);
    const std::uint64_t blocks = resident_blocks(entry->code(device), shape, device.properties);
    *clusters = static_cast<int>(blocks / (shape.cluster[0] * shape.cluster[1] * shape.cluster[2]));
  });
}

}  // namespace jit::emulated_driver
