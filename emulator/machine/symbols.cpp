#include "machine/symbols.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "machine/address_space.h"

namespace jit::emulator {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) {
  alignment = std::max<std::uint64_t>(alignment, 1);
  return (value + alignment - 1) / alignment * alignment;
}

std::uint32_t units(Type type) { return static_cast<std::uint32_t>(std::max(1, bits(type) / 32)); }

}  // namespace

Symbols::Symbols(const ptx::Module& module, const ptx::Function& function, const ModuleLayout& layout,
                 const RegisterAssignment* assignment)
    : function_(function), layout_(layout), assignment_(assignment) {
  declare_registers(function);
  place_shared(module, function);
  place_local(function);
  place_parameters(function);
}

void Symbols::declare_registers(const ptx::Function& function) {
  for (const ptx::RegisterRange& range : function.registers) {
    const std::optional<Type> type = parse_type(range.type);
    if (!type) {
      throw PtxError(function.line,
                     fmt::format("register {} has the unknown type .{}", range.prefix, range.type));
    }
    const auto count = static_cast<std::uint32_t>(std::max(range.count, 1));
    if (count > 1u << 20) {
      throw PtxError(function.line,
                     fmt::format("{} registers {} are more than a kernel can have", count, range.prefix));
    }
    const bool is_predicate = *type == Type::pred;
    const Range placed{*type, is_predicate ? predicates_ : slots_, static_cast<std::uint32_t>(range.count)};
    if (!ranges_.emplace(range.prefix, placed).second) {
      throw PtxError(function.line, fmt::format("register {} is declared twice", range.prefix));
    }
    (is_predicate ? predicates_ : slots_) += count * (is_predicate ? 1 : units(*type));
    if (is_predicate) continue;
    for (std::uint32_t i = 0; i < count; ++i) {
      declared_.push_back(units(*type) == 2);
      declared_.insert(declared_.end(), units(*type) - 1, false);
    }
  }
  if (assignment_) slots_ = assignment_->slots;
}

void Symbols::place_shared(const ptx::Module& module, const ptx::Function& function) {
  std::vector<const ptx::Variable*> dynamic;
  const auto place = [&](const std::vector<ptx::Variable>& list) {
    for (const ptx::Variable& variable : list) {
      if (variable.space != ptx::Space::shared) continue;
      if (variable.is_extern) {
        dynamic.push_back(&variable);
        dynamic_smem_alignment_ = std::max<std::size_t>(dynamic_smem_alignment_, variable.alignment);
        continue;
      }
      static_smem_bytes_ = round_up(static_smem_bytes_, variable.alignment);
      variables_[variable.name] = {ptx::Space::shared, shared_begin + static_smem_bytes_};
      static_smem_bytes_ += variable.bytes;
    }
  };
  place(module.variables);
  place(function.variables);
  static_smem_bytes_ = round_up(static_smem_bytes_, dynamic.empty() ? 1 : dynamic_smem_alignment_);
  for (const ptx::Variable* variable : dynamic) {
    variables_[variable->name] = {ptx::Space::shared, shared_begin + static_smem_bytes_};
  }
}

void Symbols::place_local(const ptx::Function& function) {
  for (const ptx::Variable& variable : function.variables) {
    if (variable.space != ptx::Space::local) continue;
    local_bytes_ = round_up(local_bytes_, variable.alignment);
    variables_[variable.name] = {ptx::Space::local, local_bytes_};
    local_bytes_ += variable.bytes;
  }
  local_bytes_ = round_up(local_bytes_, 16);
  constexpr std::size_t most_local_bytes = 512 << 10;  // of any GPU
  if (local_bytes_ > most_local_bytes) {
    throw PtxError(function.line, fmt::format("{} wants {} bytes of local memory per thread, {} is the limit",
                                              function.name, local_bytes_, most_local_bytes));
  }
}

void Symbols::place_parameters(const ptx::Function& function) {
  for (const ptx::Variable& parameter : function.parameters) {
    parameter_bytes_ = round_up(parameter_bytes_, parameter.alignment);
    variables_[parameter.name] = {ptx::Space::param, parameter_bytes_};
    parameters_.push_back({parameter.name, parameter_bytes_, parameter.bytes});
    parameter_bytes_ += parameter.bytes;
  }
}

Symbols::Register Symbols::placed(Type type, std::uint32_t index) const {
  return {type, assignment_ && type != Type::pred ? assignment_->place[index] : index};
}

std::optional<Symbols::Register> Symbols::find_register(std::string_view name) const {
  if (const auto found = ranges_.find(std::string(name));
      found != ranges_.end() && found->second.count == 0) {
    return placed(found->second.type, found->second.first);
  }
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  if (digits == name.size()) return {};
  const auto found = ranges_.find(std::string(name.substr(0, digits)));
  if (found == ranges_.end()) return {};
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), number);
  const Range& range = found->second;
  if (error != std::errc() || number >= range.count) return {};
  return placed(range.type, range.first + number * (range.type == Type::pred ? 1 : units(range.type)));
}

std::optional<Symbols::Address> Symbols::find_variable(std::string_view name) const {
  const std::string key(name);
  if (const auto found = variables_.find(key); found != variables_.end()) return found->second;
  const auto global = layout_.globals.find(key);
  if (global == layout_.globals.end()) return {};
  return Address{ptx::Space::global, global->second};
}

std::optional<PresetSlot::What> Symbols::find_special(std::string_view name) {
  using What = PresetSlot::What;
  static const std::unordered_map<std::string_view, What> names = {
      {"%tid.x", What::tid_x},
      {"%tid.y", What::tid_y},
      {"%tid.z", What::tid_z},
      {"%ntid.x", What::ntid_x},
      {"%ntid.y", What::ntid_y},
      {"%ntid.z", What::ntid_z},
      {"%ctaid.x", What::ctaid_x},
      {"%ctaid.y", What::ctaid_y},
      {"%ctaid.z", What::ctaid_z},
      {"%nctaid.x", What::nctaid_x},
      {"%nctaid.y", What::nctaid_y},
      {"%nctaid.z", What::nctaid_z},
      {"%laneid", What::laneid},
      {"%warpid", What::warpid},
      {"%nwarpid", What::nwarpid},
      {"%smid", What::smid},
      {"%nsmid", What::nsmid},
      {"%gridid", What::gridid},
      {"%lanemask_eq", What::lanemask_eq},
      {"%lanemask_lt", What::lanemask_lt},
      {"%lanemask_le", What::lanemask_le},
      {"%lanemask_gt", What::lanemask_gt},
      {"%lanemask_ge", What::lanemask_ge},
      {"%clusterid.x", What::clusterid_x},
      {"%clusterid.y", What::clusterid_y},
      {"%clusterid.z", What::clusterid_z},
      {"%nclusterid.x", What::nclusterid_x},
      {"%nclusterid.y", What::nclusterid_y},
      {"%nclusterid.z", What::nclusterid_z},
      {"%cluster_ctaid.x", What::cluster_ctaid_x},
      {"%cluster_ctaid.y", What::cluster_ctaid_y},
      {"%cluster_ctaid.z", What::cluster_ctaid_z},
      {"%cluster_nctaid.x", What::cluster_nctaid_x},
      {"%cluster_nctaid.y", What::cluster_nctaid_y},
      {"%cluster_nctaid.z", What::cluster_nctaid_z},
      {"%cluster_ctarank", What::cluster_ctarank},
      {"%cluster_nctarank", What::cluster_nctarank},
      {"%dynamic_smem_size", What::dynamic_smem_size},
      {"%total_smem_size", What::total_smem_size},
  };
  const auto found = names.find(name);
  if (found == names.end()) return {};
  return found->second;
}

std::optional<std::uint32_t> Symbols::find_label(const std::string& name) const {
  const auto found = function_.labels.find(name);
  if (found == function_.labels.end()) return {};
  return static_cast<std::uint32_t>(found->second);
}

const std::vector<std::string>* Symbols::find_branch_targets(const std::string& name) const {
  const auto found = function_.branch_targets.find(name);
  return found == function_.branch_targets.end() ? nullptr : &found->second;
}

Slot Symbols::preset(PresetSlot::What what, std::uint64_t value, bool wide) {
  const auto [place, is_new] = preset_slots_.try_emplace({static_cast<int>(what), {value, wide}}, slots_);
  if (is_new) presets_.push_back({what, new_slot(wide), wide, value});
  return place->second;
}

Slot Symbols::scratch(bool wide) {
  const Slot slot = new_slot(wide);
  presets_.push_back({PresetSlot::What::constant, slot, wide, 0});
  return slot;
}

Slot Symbols::new_slot(bool wide) {
  const Slot slot = slots_;
  slots_ += wide ? 2 : 1;
  return slot;
}

Predicate Symbols::constant_predicate(bool value) { return value ? 1 : 0; }

void Symbols::finish(Kernel& kernel) const {
  kernel.parameters = parameters_;
  kernel.parameter_bytes = parameter_bytes_;
  kernel.presets = presets_;
  kernel.slots = slots_;
  kernel.predicates = predicates_;
  kernel.static_smem_bytes = static_smem_bytes_;
  kernel.dynamic_smem_alignment = dynamic_smem_alignment_;
  kernel.local_bytes = local_bytes_;
}

}  // namespace jit::emulator
