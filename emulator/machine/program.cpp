#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "machine/control_flow.h"
#include "machine/decoder.h"
#include "machine/global_memory.h"
#include "machine/symbols.h"

namespace jit::emulator {
namespace {

// The newest PTX version that NVRTC up to 13.5 writes.
constexpr int newest_ptx_major = 9;
constexpr int newest_ptx_minor = 5;

constexpr DecodeFunction families[] = {
    decode_integer,  decode_floating, decode_half, decode_compare,     decode_convert,
    decode_move,     decode_control,  decode_warp, decode_barrier,     decode_fence,
    decode_memory,   decode_atomic,   decode_mma,  decode_matrix_move, decode_wgmma,
    decode_mbarrier, decode_cp_async, decode_bulk, decode_grid,        decode_tcgen05,
};

TargetArch parse_target(const ptx::Module& module) {
  const std::string& text = module.target;
  TargetArch arch;
  const std::size_t digits = text.find_first_not_of("0123456789", 3);
  const std::string number =
      text.substr(std::min<std::size_t>(3, text.size()), digits == std::string::npos ? digits : digits - 3);
  if (!text.starts_with("sm_") || number.size() < 2 || number.size() > 3) {
    throw PtxError(module.target_line,
                   fmt::format(".target {} is no architecture; sm_80 and the like are", text));
  }
  arch.major = std::stoi(number.substr(0, number.size() - 1));
  arch.minor = number.back() - '0';
  if (digits != std::string::npos) arch.suffix = text[digits];
  if (digits != std::string::npos &&
      (digits + 1 != text.size() || (arch.suffix != 'a' && arch.suffix != 'f'))) {
    throw PtxError(module.target_line,
                   fmt::format(".target {} is no architecture; sm_80, sm_90a and the like are", text));
  }
  return arch;
}

std::string to_text(TargetArch arch) {
  return fmt::format("sm_{}{}{}", arch.major, arch.minor,
                     arch.suffix ? std::string(1, arch.suffix) : std::string());
}

void check_runs(const ptx::Module& module, TargetArch target, TargetArch device) {
  if (std::pair(module.version_major, module.version_minor) > std::pair(newest_ptx_major, newest_ptx_minor)) {
    throw PtxError(
        module.version_line,
        fmt::format("PTX {}.{} is newer than {}.{}, the newest that the emulator knows", module.version_major,
                    module.version_minor, newest_ptx_major, newest_ptx_minor));
  }
  const bool same = target.major == device.major && target.minor == device.minor;
  const bool later = std::pair(device.major, device.minor) >= std::pair(target.major, target.minor);
  const bool runs = target.suffix == 'a'   ? same
                    : target.suffix == 'f' ? target.major == device.major && later
                                           : later;
  if (!runs) {
    throw PtxError(module.target_line, fmt::format("PTX for {} does not run on an emulated {}",
                                                   to_text(target), to_text(device)));
  }
}

void place_variables(const ptx::Module& module, Program& program, ModuleLayout& layout) {
  for (const ptx::Variable& variable : module.variables) {
    if (variable.space != ptx::Space::global && variable.space != ptx::Space::constant) continue;
    if (variable.is_extern) {
      throw PtxError(variable.line,
                     fmt::format("{} is declared .extern, and nothing defines it", variable.name));
    }
    const std::size_t alignment = std::max<std::size_t>(1, variable.alignment);
    const std::size_t offset = (program.globals.size() + alignment - 1) / alignment * alignment;
    program.globals_alignment = std::max(program.globals_alignment, alignment);
    program.globals.resize(offset + variable.bytes, 0);
    std::copy(variable.initial.begin(), variable.initial.end(),
              program.globals.begin() + static_cast<std::ptrdiff_t>(offset));
    layout.globals[variable.name] = offset;
  }
  for (const ptx::Variable& variable : module.variables) {
    for (ptx::Variable::Relocation relocation : variable.relocations) {
      const auto symbol = layout.globals.find(relocation.symbol);
      if (symbol == layout.globals.end()) {
        throw PtxError(variable.line, fmt::format("{}: the address of {} cannot be an initial value",
                                                  variable.name, relocation.symbol));
      }
      relocation.offset += layout.globals.at(variable.name);
      relocation.addend += static_cast<std::int64_t>(symbol->second);
      program.relocations.push_back(std::move(relocation));
    }
  }
}

void decode_body(const ptx::Function& function, TargetArch target, TargetArch device, Symbols& symbols,
                 Kernel& kernel) {
  kernel.code.clear();
  kernel.info.clear();
  const auto count = static_cast<std::uint32_t>(function.body.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const ptx::Instruction& text = function.body[i];
    Decoder decoder(symbols, text, target, device);
    Instruction instruction;
    for (const DecodeFunction decode : families) {
      if ((instruction.operation = decode(decoder))) break;
    }
    if (!instruction.operation) decoder.fail("the emulator does not know this instruction");
    decoder.check_all_taken();
    InstructionInfo info{.name = text.full_name(),
                         .kind = decoder.kind(),
                         .ptx_line = text.line,
                         .source = text.source,
                         .guarded = text.guard.has_value(),
                         .reads = decoder.reads(),
                         .writes = decoder.writes(),
                         .successors = decoder.branch_targets()};
    if (text.guard) {
      const Decoder::PredicateSource guard =
          decoder.predicate_source({.name = text.guard->predicate, .negated = text.guard->negated});
      instruction.guard = guard.predicate;
      instruction.guard_negated = guard.negated;
    }
    if ((decoder.falls_through() && !decoder.exits()) || text.guard) info.successors.push_back(i + 1);
    instruction.aligned = decoder.aligned();
    instruction.reconvergence = count;
    kernel.code.push_back(std::move(instruction));
    kernel.info.push_back(std::move(info));
  }
}

void set_reconvergence(const FlowGraph& graph, Kernel& kernel) {
  const std::vector<int> postdominators = immediate_postdominators(graph);
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (postdominators[b] < 0) continue;
    kernel.code[graph.blocks[b].end - 1].reconvergence =
        graph.blocks[static_cast<std::size_t>(postdominators[b])].begin;
  }
}

// Registers that hold only parameters and constants, as bits: an assembler reads these from the constant
// bank, or encodes them as immediates.
std::vector<std::uint64_t> constant_registers(const std::vector<InstructionInfo>& info, std::uint32_t slots) {
  std::vector<std::uint64_t> constants((slots + 63) / 64), computed(constants.size());
  for (const InstructionInfo& instruction : info) {
    const bool is_constant = instruction.name.starts_with("ld.param") ||
                             (instruction.name.starts_with("mov.") && instruction.reads.empty());
    auto& written = is_constant ? constants : computed;
    for (const Slot slot : instruction.writes) written[slot / 64] |= std::uint64_t{1} << slot % 64;
  }
  for (std::size_t w = 0; w < constants.size(); ++w) constants[w] &= ~computed[w];
  return constants;
}

void count_live_registers(const FlowGraph& graph, const Liveness& liveness, std::uint32_t slots,
                          Kernel& kernel) {
  const std::vector<std::uint64_t> constants = constant_registers(kernel.info, slots);
  kernel.live_registers.assign(kernel.code.size(), 0);
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    liveness.walk_back(static_cast<int>(b), [&](std::uint32_t i, const std::vector<std::uint64_t>& alive) {
      for (std::size_t w = 0; w < alive.size(); ++w)
        kernel.live_registers[i] += std::popcount(alive[w] & ~constants[w]);
    });
  }
  for (const int live : kernel.live_registers)
    kernel.register_estimate = std::max(kernel.register_estimate, live);
}

int product(const std::vector<int>& numbers) {
  long long result = 1;
  for (const int number : numbers) result = std::min<long long>(result * std::max(number, 0), 1 << 20);
  return static_cast<int>(result);
}

Kernel decode_kernel(const ptx::Module& module, const ptx::Function& function, const ModuleLayout& layout,
                     TargetArch target, TargetArch device) {
  Kernel kernel;
  kernel.name = function.name;
  // Compilers give every value its own register. The first pass finds which are live together, the second
  // packs them, so that a warp's registers stay in the host's cache.
  Symbols declared(module, function, layout);
  decode_body(function, target, device, declared, kernel);
  const FlowGraph graph = flow_graph(kernel.info);
  const auto slots = static_cast<std::uint32_t>(declared.declared().size());
  const Liveness liveness(graph, kernel.info, slots);
  count_live_registers(graph, liveness, slots, kernel);
  const RegisterAssignment assignment =
      assign_registers(graph, liveness, kernel.info, slots, declared.declared());
  Symbols packed(module, function, layout, &assignment);
  decode_body(function, target, device, packed, kernel);
  set_reconvergence(graph, kernel);
  packed.finish(kernel);
  constexpr int most_files = 1 << 16;
  for (const auto& [number, file] : module.files) {
    if (number < 0 || number >= most_files) continue;
    kernel.files.resize(std::max<std::size_t>(kernel.files.size(), static_cast<std::size_t>(number) + 1));
    kernel.files[static_cast<std::size_t>(number)] = file;
  }
  for (const char* directive : {"maxntid", "reqntid"}) {
    if (const auto found = function.directives.find(directive); found != function.directives.end()) {
      kernel.max_threads = std::min(1024, product(found->second));
    }
  }
  if (const auto found = function.directives.find("reqntid"); found != function.directives.end()) {
    kernel.required_block = {1, 1, 1};
    for (std::size_t d = 0; d < std::min<std::size_t>(found->second.size(), 3); ++d)
      (*kernel.required_block)[d] = static_cast<unsigned>(found->second[d]);
  }
  if (const auto found = function.directives.find("minnctapersm"); found != function.directives.end()) {
    kernel.min_blocks = std::clamp(product(found->second), 1, 32);
  }
  if (const auto found = function.directives.find("reqnctapercluster"); found != function.directives.end()) {
    kernel.cluster = found->second;
    kernel.cluster.resize(3, 1);
  }
  return kernel;
}

std::shared_ptr<const Program> load(std::string ptx, std::optional<TargetArch> given) {
  const ptx::Module module = ptx::parse(ptx);
  auto program = std::make_shared<Program>();
  program->target = parse_target(module);
  const TargetArch device = given.value_or(program->target);
  check_runs(module, program->target, device);
  program->ptx = std::move(ptx);
  ModuleLayout layout;
  place_variables(module, *program, layout);
  for (const ptx::Function& function : module.functions) {
    if (function.is_entry)
      program->kernels.push_back(decode_kernel(module, function, layout, program->target, device));
  }
  return program;
}

}  // namespace

const Kernel* Program::find(std::string_view name) const {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& kernel) { return kernel.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

std::shared_ptr<const Program> load_program(std::string ptx, TargetArch device) {
  return load(std::move(ptx), device);
}
std::shared_ptr<const Program> load_program(std::string ptx) { return load(std::move(ptx), {}); }

std::uint64_t place_globals(const Program& program, GlobalMemory& memory) {
  if (program.globals.empty()) return 0;
  const std::uint64_t address = memory.allocate(program.globals.size());
  if (address == 0) return 0;
  std::vector<std::uint8_t> bytes = program.globals;
  for (const ptx::Variable::Relocation& relocation : program.relocations) {
    const std::uint64_t value = address + static_cast<std::uint64_t>(relocation.addend);
    std::memcpy(bytes.data() + relocation.offset, &value, sizeof(value));
  }
  memory.write(address, bytes.data(), bytes.size());
  return address;
}

}  // namespace jit::emulator
