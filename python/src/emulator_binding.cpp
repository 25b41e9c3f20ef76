#include "emulator_binding.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <emulator/launch.h>
#include <emulator/tensor_map.h>
#include <fmt/format.h>
#include <jit/arch.h>
#include <jit/error.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "process.h"

namespace jit::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;
using emulator::TargetArch;

[[noreturn]] void refuse_argument(const char* field, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "emulate", field, message);
}

std::optional<TargetArch> arch_of(nb::handle arch) {
  if (arch.is_none()) return {};
  const Arch parsed = parse_arch(nb::cast<std::string>(nb::str(arch)));
  return TargetArch{parsed.major, parsed.minor, parsed.suffix};
}

/// A module, and the architecture that it runs on.
struct EmulatedModule {
  emulator::Module module;
  TargetArch arch;
};

struct EmulatedKernel {
  emulator::Function function;
  TargetArch arch;
};

struct EmulatedResult {
  emulator::Function function;
  emulator::LaunchResult result;
};

EmulatedModule load(nb::bytes text, nb::handle arch) {
  const std::optional<TargetArch> device = arch_of(arch);
  std::string ptx(text.c_str(), text.size());
  try {
    const Unlocked unlocked;
    const emulator::Module module =
        device ? emulator::Module(std::move(ptx), *device) : emulator::Module(std::move(ptx));
    return {module, device.value_or(module.target())};
  } catch (const emulator::PtxError& error) {
    refuse_argument("ptx", error.what());
  }
}

std::vector<EmulatedKernel> kernels_of(const EmulatedModule& self) {
  std::vector<EmulatedKernel> kernels;
  for (const emulator::Function& function : self.module.functions()) kernels.push_back({function, self.arch});
  return kernels;
}

nb::list parameters_of(const EmulatedKernel& self) {
  nb::list parameters;
  for (const emulator::Parameter& parameter : self.function.parameters())
    parameters.append(nb::make_tuple(readable(parameter.name), parameter.offset, parameter.bytes));
  return parameters;
}

EmulatedResult launch(const EmulatedKernel& self, emulator::Memory& memory, nb::bytes parameters,
                      std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                      std::array<unsigned, 3> cluster, std::size_t dynamic_shared, std::uint64_t seed,
                      std::uint64_t step_limit, bool silicon, const std::vector<std::string>& allow) {
  const auto* const first = reinterpret_cast<const std::byte*>(parameters.c_str());
  const std::vector<std::byte> block_of_parameters(first, first + parameters.size());
  SignalWatch signals;
  emulator::LaunchOptions options{.seed = seed, .step_limit = step_limit};
  options.level = silicon ? emulator::Level::silicon : emulator::Level::strict;
  options.smem_limit = static_cast<std::size_t>(
      smem_per_block_optin(Arch{self.arch.major, self.arch.minor, self.arch.suffix}));
  options.is_interrupted = [&signals] { return signals.has_raised(); };
  try {
    for (const std::string& kind : allow) options.allowed.push_back(emulator::parse_finding_kind(kind));
    const Unlocked unlocked;
    return {self.function,
            emulator::launch(
                self.function,
                {.grid = grid, .block = block, .cluster = cluster, .dynamic_smem_bytes = dynamic_shared},
                block_of_parameters, memory, options)};
  } catch (const std::invalid_argument& error) {
    refuse_argument("launch", error.what());
  } catch (const std::bad_alloc&) {
    refuse_argument("launch", "the kernel wants more memory than this machine has");
  } catch (const emulator::LaunchInterrupted&) {
    signals.rethrow();
    throw;
  }
}

nb::list findings_of(const EmulatedResult& self) {
  nb::list findings;
  for (const emulator::Finding& finding : self.result.findings) {
    findings.append(nb::make_tuple(
        readable(to_string(finding.kind)), readable(finding.message), readable(finding.kernel),
        nb::make_tuple(finding.block[0], finding.block[1], finding.block[2]), finding.warp, finding.lane,
        finding.ptx_line, readable(finding.file), finding.line, readable(to_string(finding))));
  }
  return findings;
}

// Dimensions from the innermost one on.
nb::bytes tensor_map(std::uint64_t address, int element, const std::vector<std::uint64_t>& dimensions,
                     const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
                     int swizzle) {
  using Map = emulator::TensorMap;
  Map map{.element = static_cast<Map::Element>(element),
          .rank = static_cast<std::uint32_t>(dimensions.size()),
          .address = address,
          .swizzle = static_cast<Map::Swizzle>(swizzle)};
  std::copy(dimensions.begin(), dimensions.end(), map.dimensions.begin());
  std::copy(strides.begin(), strides.end(), map.strides.begin());
  std::copy(box.begin(), box.end(), map.box.begin());
  if (const auto wrong = emulator::validate(map)) refuse_argument("map", *wrong);
  const auto bytes = emulator::encode(map);
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

void bind_emulator(nb::module_& module) {
  nb::class_<EmulatedModule>(module, "EmulatedModule")
      .def_prop_ro("kernels", kernels_of)
      .def_prop_ro("ptx", [](const EmulatedModule& self) { return readable(self.module.ptx()); })
      .def_prop_ro("arch", [](const EmulatedModule& self) {
        return to_string(Arch{self.arch.major, self.arch.minor, self.arch.suffix});
      });
  nb::class_<EmulatedKernel>(module, "EmulatedKernel")
      .def_prop_ro("name", [](const EmulatedKernel& self) { return readable(self.function.name()); })
      .def_prop_ro("parameters", parameters_of)
      .def_prop_ro("parameter_bytes",
                   [](const EmulatedKernel& self) { return self.function.parameter_bytes(); })
      .def("launch", launch);
  nb::class_<EmulatedResult>(module, "EmulatedResult")
      .def_prop_ro("findings", findings_of)
      .def_prop_ro("warp_instructions",
                   [](const EmulatedResult& self) { return self.result.warp_instructions; })
      .def_prop_ro("seconds", [](const EmulatedResult& self) { return self.result.seconds; })
      .def_prop_ro("counts",
                   [](const EmulatedResult& self) {
                     return nb::module_::import_("json").attr("loads")(
                         readable(emulator::counts_json(self.function, self.result.counts)));
                   })
      .def_prop_ro("listing", [](const EmulatedResult& self) {
        return readable(emulator::annotated_listing(self.function, self.result.counts));
      });
  nb::class_<emulator::Memory>(module, "EmulatedMemory")
      .def(nb::init<std::size_t>())
      .def("allocate", &emulator::Memory::allocate)
      .def("write",
           [](emulator::Memory& self, std::uint64_t to, std::uintptr_t from, std::size_t bytes) {
             return self.write(to, reinterpret_cast<const void*>(from), bytes);
           })
      .def("read", [](const emulator::Memory& self, std::uintptr_t to, std::uint64_t from,
                      std::size_t bytes) { return self.read(reinterpret_cast<void*>(to), from, bytes); });
  module.def("emulated_module", load, "ptx"_a, "arch"_a.none());
  module.def("emulated_tensor_map", tensor_map);
  module.def("finding_kinds", [] {
    nb::list kinds;
    for (const emulator::FindingKind kind : emulator::finding_kinds())
      kinds.append(readable(to_string(kind)));
    return kinds;
  });
}

}  // namespace jit::python
