#include "tests/conformance/emulator_run.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "emulator/machine/global_memory.h"
#include "emulator/machine/launch.h"
#include "emulator/operations/copies/tensor_map.h"

namespace jit::conformance {
namespace {

// The recordings are of Hopper, also where the PTX is of an older architecture.
constexpr emulator::TargetArch device = {9, 0, 'a'};

emulator::TensorMap describe(const TensorMap& map, std::uint64_t address) {
  emulator::TensorMap described;
  described.element = static_cast<emulator::TensorMap::Element>(map.type);
  described.rank = static_cast<std::uint32_t>(map.sizes.size());
  described.address = address;
  std::copy(map.sizes.begin(), map.sizes.end(), described.dimensions.begin());
  std::copy(map.strides.begin(), map.strides.end(), described.strides.begin());
  std::copy(map.box.begin(), map.box.end(), described.box.begin());
  std::copy(map.element_steps.begin(), map.element_steps.end(), described.element_strides.begin());
  described.swizzle = static_cast<emulator::TensorMap::Swizzle>(map.swizzle);
  described.out_of_bounds = static_cast<emulator::TensorMap::OutOfBounds>(map.fill);
  if (const auto fault = emulator::validate(described)) throw std::invalid_argument(*fault);
  return described;
}

EmulatorResult run(const MicroKernel& kernel, std::uint64_t seed) {
  const auto program = emulator::load_program(kernel.ptx, device);
  emulator::GlobalMemory memory(std::size_t{1} << 26);
  std::vector<std::uint64_t> addresses;
  for (int i = -1; i < static_cast<int>(kernel.inputs.size()); ++i) {
    const std::vector<std::byte> bytes = contents(kernel, i);
    addresses.push_back(memory.allocate(bytes.size()));
    memory.write(addresses.back(), bytes.data(), bytes.size());
  }
  const emulator::Kernel& entry = program->kernels.front();
  std::vector<std::byte> parameters(entry.parameter_bytes);
  const auto set = [&](std::size_t index, const void* data, std::size_t bytes) {
    const emulator::Parameter& parameter = entry.parameters.at(index);
    if (parameter.bytes != bytes) throw std::logic_error("the parameters are not those of a micro-kernel");
    std::memcpy(parameters.data() + parameter.offset, data, bytes);
  };
  for (std::size_t i = 0; i < addresses.size(); ++i) set(i, &addresses[i], sizeof(addresses[i]));
  for (std::size_t i = 0; i < kernel.maps.size(); ++i) {
    const TensorMap& map = kernel.maps[i];
    const auto bytes =
        emulator::encode(describe(map, addresses.at(static_cast<std::size_t>(map.buffer + 1))));
    set(addresses.size() + i, bytes.data(), bytes.size());
  }
  const emulator::LaunchShape shape{kernel.grid, kernel.block, kernel.cluster, kernel.dynamic_smem};
  const std::uint64_t globals = program->globals.empty() ? 0 : emulator::place_globals(*program, memory);
  const emulator::LaunchResult launched =
      emulator::launch(*program, entry, shape, parameters, memory, globals,
                       {.seed = seed,
                        .threads = 1,
                        .step_limit = std::uint64_t{1} << 22,
                        .registers_per_thread = kernel.registers});
  EmulatorResult result;
  for (const emulator::Finding& finding : launched.findings) {
    result.findings.push_back(emulator::to_string(finding));
  }
  result.output.resize(kernel.output.bytes());
  memory.read(result.output.data(), addresses.front(), result.output.size());
  return result;
}

}  // namespace

EmulatorResult run_on_emulator(const MicroKernel& kernel, std::uint64_t seed) {
  try {
    return run(kernel, seed);
  } catch (const std::exception& error) {
    return {.error = error.what(), .findings = {}, .output = {}};
  }
}

}  // namespace jit::conformance
