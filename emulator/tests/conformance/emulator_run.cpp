#include "tests/conformance/emulator_run.h"

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <stdexcept>

#include <emulator/launch.h>
#include <emulator/tensor_map.h>

namespace jit::conformance {
namespace {

// The recordings are of Hopper, also where the PTX is of an older architecture.
constexpr emulator::TargetArch device = {9, 0, 'a'};

emulator::TensorMap describe(const TensorMap& map, std::uint64_t address) {
  emulator::TensorMap described;
  described.element = map.type;
  described.rank = static_cast<std::uint32_t>(map.sizes.size());
  described.address = address;
  std::copy(map.sizes.begin(), map.sizes.end(), described.dimensions.begin());
  std::copy(map.strides.begin(), map.strides.end(), described.strides.begin());
  std::copy(map.box.begin(), map.box.end(), described.box.begin());
  std::copy(map.element_steps.begin(), map.element_steps.end(), described.element_strides.begin());
  described.swizzle = map.swizzle;
  described.out_of_bounds = map.fill;
  if (const auto fault = emulator::validate(described)) throw std::invalid_argument(*fault);
  return described;
}

EmulatorResult run(const MicroKernel& kernel, std::uint64_t seed) {
  const emulator::Function function = emulator::Module(kernel.ptx, device).functions().front();
  emulator::Memory memory(std::size_t{1} << 26);
  std::vector<std::uint64_t> addresses;
  for (int i = -1; i < static_cast<int>(kernel.inputs.size()); ++i)
    addresses.push_back(memory.upload(contents(kernel, i)));
  std::vector<std::array<std::byte, emulator::tensor_map_bytes>> maps;
  for (const TensorMap& map : kernel.maps) {
    maps.push_back(emulator::encode(describe(map, addresses.at(static_cast<std::size_t>(map.buffer + 1)))));
  }
  std::vector<std::span<const std::byte>> values;
  for (const std::uint64_t& address : addresses) values.push_back(std::as_bytes(std::span(&address, 1)));
  for (const auto& map : maps) values.emplace_back(map);
  const emulator::LaunchShape shape{kernel.grid, kernel.block, kernel.cluster, kernel.dynamic_smem};
  const emulator::LaunchResult launched = emulator::launch(function, shape, function.pack(values), memory,
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
