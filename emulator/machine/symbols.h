// Names of a kernel, and their registers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "machine/control_flow.h"
#include "machine/kernel.h"

namespace jit::emulator {

/// Offsets of a module's variables.
struct ModuleLayout {
  std::unordered_map<std::string, std::size_t>
      globals;  ///< offset in Program::globals, of .global and .const
};

class Symbols {
 public:
  /// Throws ptx::PtxError for a name that is declared twice or a type that is not known. `assignment`, unless
  /// null, gives the units of declared registers, which otherwise get one each.
  Symbols(const ptx::Module& module, const ptx::Function& function, const ModuleLayout& layout,
          const RegisterAssignment* assignment = nullptr);

  struct Register {
    Type type;
    std::uint32_t index;  ///< Slot, or Predicate when `type` is pred
  };
  std::optional<Register> find_register(std::string_view name) const;

  /// A variable's address in its space.
  struct Address {
    ptx::Space space;
    std::uint64_t value;  ///< of a global: offset in Program::globals
  };
  std::optional<Address> find_variable(std::string_view name) const;
  /// The preset of a special register such as %tid.x; nothing for another name.
  static std::optional<PresetSlot::What> find_special(std::string_view name);
  std::optional<std::uint32_t> find_label(const std::string& name) const;
  const std::vector<std::string>* find_branch_targets(const std::string& name) const;

  /// The slot that initially holds this preset; equal presets share one slot.
  Slot preset(PresetSlot::What what, std::uint64_t value, bool wide);
  Slot new_slot(bool wide);
  /// A new slot, initially 0.
  Slot scratch(bool wide);
  Predicate new_predicate() { return predicates_++; }
  /// A predicate with this value in every lane.
  Predicate constant_predicate(bool value);

  /// Units of the declared registers: true where a 64-bit register begins.
  const std::vector<bool>& declared() const { return declared_; }
  /// Writes the kernel's registers, parameters and shared memory.
  void finish(Kernel& kernel) const;

 private:
  Register placed(Type type, std::uint32_t index) const;
  void declare_registers(const ptx::Function& function);
  void place_shared(const ptx::Module& module, const ptx::Function& function);
  void place_local(const ptx::Function& function);
  void place_parameters(const ptx::Function& function);

  struct Range {
    Type type;
    std::uint32_t first;
    std::uint32_t count;
  };
  const ptx::Function& function_;
  const ModuleLayout& layout_;
  const RegisterAssignment* assignment_;
  std::vector<bool> declared_;
  std::unordered_map<std::string, Range> ranges_;  // by prefix; of a single register, by name
  std::unordered_map<std::string, Address> variables_;
  std::vector<Parameter> parameters_;
  std::size_t parameter_bytes_ = 0, static_smem_bytes_ = 0, dynamic_smem_alignment_ = 16, local_bytes_ = 0;
  std::vector<PresetSlot> presets_;
  std::map<std::pair<int, std::pair<std::uint64_t, bool>>, Slot> preset_slots_;
  std::uint32_t slots_ = 0;
  std::uint32_t predicates_ = 2;  // 0 is always false, 1 always true
};

}  // namespace jit::emulator
