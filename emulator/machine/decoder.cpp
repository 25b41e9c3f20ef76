#include "machine/decoder.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "machine/symbols.h"

namespace jit::emulator {
namespace {

using ptx::Operand;

bool is_wide(Type type) { return bits(type) > 32; }

std::uint64_t truncate(std::uint64_t value, Type type) {
  const int width = bits(type);
  return width >= 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

// A literal's bits as a value of `type`.
std::uint64_t literal_bits(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::integer) {
    return truncate(operand.negated ? 0 - operand.bits : operand.bits, type);
  }
  double value = operand.is_single
                     ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(operand.bits)))
                     : std::bit_cast<double>(operand.bits);
  if (bits(type) <= 32) {
    // A NaN written as 0f… keeps its payload.
    std::uint32_t single = operand.is_single ? static_cast<std::uint32_t>(operand.bits)
                                             : std::bit_cast<std::uint32_t>(static_cast<float>(value));
    if (operand.negated) single ^= 0x80000000u;
    return truncate(single, type);
  }
  std::uint64_t whole = operand.is_single ? std::bit_cast<std::uint64_t>(value) : operand.bits;
  if (operand.negated) whole ^= std::uint64_t{1} << 63;
  return whole;
}

}  // namespace

Decoder::Decoder(Symbols& symbols, const ptx::Instruction& instruction, TargetArch target, TargetArch device)
    : symbols_(symbols),
      text_(instruction),
      target_(target),
      device_(device),
      taken_(instruction.modifiers.size(), false) {}

void Decoder::fail(const std::string& message) const {
  throw ptx::PtxError(text_.line, fmt::format("{}: {}", text_.full_name(), message));
}

bool Decoder::has(std::string_view modifier) const {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i] && text_.modifiers[i] == modifier) return true;
  }
  return false;
}

bool Decoder::take(std::string_view modifier) {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i] && text_.modifiers[i] == modifier) {
      taken_[i] = true;
      return true;
    }
  }
  return false;
}

std::string_view Decoder::take_any_of(std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers) {
    if (take(modifier)) return modifier;
  }
  return {};
}

std::string_view Decoder::take_one_of(std::initializer_list<std::string_view> modifiers) {
  const std::string_view taken = take_any_of(modifiers);
  if (taken.empty()) fail(fmt::format("lacks one of .{}", fmt::join(modifiers, ", .")));
  return taken;
}

Type Decoder::take_type() {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    if (const std::optional<Type> type = parse_type(text_.modifiers[i])) {
      taken_[i] = true;
      return *type;
    }
  }
  fail("lacks a type");
}

std::string Decoder::take_next() {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    taken_[i] = true;
    return text_.modifiers[i];
  }
  fail("lacks a modifier");
}

void Decoder::check_all_taken() const {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i]) fail(fmt::format("modifier .{} is not known to the emulator here", text_.modifiers[i]));
  }
}

void Decoder::require_arch(int major, int minor, bool only) {
  const bool same = target_.major == major && target_.minor == minor;
  const bool fits = only ? same && target_.suffix == 'a'
                         : same || target_.major > major || (target_.major == major && target_.minor > minor);
  if (!fits) {
    fail(fmt::format("needs .target sm_{}{}{}, this module is for sm_{}{}{}", major, minor,
                     only ? "a" : " or later", target_.major, target_.minor,
                     target_.suffix ? std::string(1, target_.suffix) : std::string()));
  }
}

void Decoder::expect_count(std::size_t least, std::size_t most) {
  if (count() >= least && count() <= most) return;
  fail(least == most ? fmt::format("takes {} operands, not {}", least, count())
                     : fmt::format("takes {} to {} operands, not {}", least, most, count()));
}

const Operand& Decoder::operand(std::size_t index) const {
  if (index >= count()) fail(fmt::format("lacks operand {}", index + 1));
  return text_.operands[index];
}

void Decoder::note(std::vector<Slot>& list, Slot slot, Type type) {
  list.push_back(slot);
  if (is_wide(type)) list.push_back(slot + 1);
}

int Decoder::register_bits(const Operand& operand) const {
  if (operand.kind != Operand::Kind::name) return 0;
  const auto found = symbols_.find_register(operand.name);
  return found ? bits(found->type) : 0;
}

Slot Decoder::destination(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::discard) return symbols_.new_slot(is_wide(type));
  if (operand.kind != Operand::Kind::name) fail("the destination must be a register");
  const auto found = symbols_.find_register(operand.name);
  if (!found || found->type == Type::pred)
    fail(fmt::format("{} is not a register that can be written", operand.name));
  if (bits(found->type) > 64)
    fail(fmt::format("{}: registers of 128 bits are not known to the emulator", operand.name));
  if (is_wide(found->type) != is_wide(type)) {
    fail(fmt::format("{} has {} bits, the instruction writes {}", operand.name, bits(found->type),
                     bits(type)));
  }
  note(writes_, found->index, type);
  return found->index;
}

Slot Decoder::source(const Operand& operand, Type type) {
  switch (operand.kind) {
    case Operand::Kind::integer:
    case Operand::Kind::real:
      return constant(literal_bits(operand, type), type);
    case Operand::Kind::name:
      break;
    default:
      fail("a register or a number is expected here");
  }
  if (operand.negated) fail(fmt::format("-{} is not a legal operand", operand.name));
  if (const auto found = symbols_.find_register(operand.name)) {
    if (found->type == Type::pred) fail(fmt::format("{} is a predicate, a value is expected", operand.name));
    if (bits(found->type) > 64)
      fail(fmt::format("{}: registers of 128 bits are not known to the emulator", operand.name));
    if (is_wide(found->type) != is_wide(type)) {
      fail(fmt::format("{} has {} bits, the instruction reads {}", operand.name, bits(found->type),
                       bits(type)));
    }
    note(reads_, found->index, type);
    return found->index;
  }
  if (const auto what = Symbols::find_special(operand.name)) return symbols_.preset(*what, 0, is_wide(type));
  if (operand.name == "WARP_SZ") return constant(32, type);
  if (const auto variable = symbols_.find_variable(operand.name)) {
    const std::uint64_t value = variable->value + static_cast<std::uint64_t>(operand.offset);
    if (variable->space == ptx::Space::global) {
      if (!is_wide(type)) fail(fmt::format("the address of {} has 64 bits", operand.name));
      return symbols_.preset(PresetSlot::What::global_base, value, true);
    }
    if (variable->space == ptx::Space::shared) {
      return symbols_.preset(PresetSlot::What::shared_base, value, is_wide(type));
    }
    return constant(value, type);
  }
  fail(fmt::format("{} is not declared, and no special register that the emulator knows", operand.name));
}

Slot Decoder::in_out(const Operand& operand, Type type) {
  const Slot slot = source(operand, type);
  if (const auto found = symbols_.find_register(operand.name);
      !found || operand.kind != Operand::Kind::name) {
    fail("a register is expected here");
  }
  note(writes_, slot, type);
  return slot;
}

Predicate Decoder::predicate_destination(const Operand& operand) {
  if (operand.kind == Operand::Kind::discard) return symbols_.new_predicate();
  const auto found = operand.kind == Operand::Kind::name && !operand.negated
                         ? symbols_.find_register(operand.name)
                         : std::nullopt;
  if (!found || found->type != Type::pred) fail("the destination must be a predicate");
  return found->index;
}

Decoder::PredicateSource Decoder::predicate_source(const Operand& operand) {
  if (operand.kind == Operand::Kind::integer) {
    return {symbols_.constant_predicate(operand.bits != 0), operand.negated && operand.bits == 0};
  }
  const auto found =
      operand.kind == Operand::Kind::name ? symbols_.find_register(operand.name) : std::nullopt;
  if (!found || found->type != Type::pred) fail(fmt::format("{} is not a predicate", operand.name));
  return {found->index, operand.negated};
}

std::int64_t Decoder::immediate(std::size_t index) const {
  const Operand& literal = operand(index);
  if (literal.kind != Operand::Kind::integer) fail(fmt::format("operand {} must be a number", index + 1));
  const auto value = static_cast<std::int64_t>(literal.bits);
  return literal.negated ? -value : value;
}

Decoder::Address Decoder::address(const Operand& operand) {
  if (operand.kind != Operand::Kind::address) fail("an address in brackets is expected here");
  if (operand.name.empty()) return {constant(operand.bits, Type::u64), false, operand.offset};
  if (const auto found = symbols_.find_register(operand.name)) {
    const int width = bits(found->type);
    if (found->type == Type::pred || (width != 32 && width != 64)) {
      fail(fmt::format("{} cannot hold an address: it has {} bits", operand.name, width));
    }
    note(reads_, found->index, width == 32 ? Type::u32 : Type::u64);
    return {found->index, width == 32, operand.offset};
  }
  const auto variable = symbols_.find_variable(operand.name);
  if (!variable) fail(fmt::format("{} is not declared", operand.name));
  if (variable->space == ptx::Space::global) {
    return {symbols_.preset(PresetSlot::What::global_base, variable->value, true), false, operand.offset};
  }
  if (variable->space == ptx::Space::shared)
    return {symbols_.preset(PresetSlot::What::shared_base, variable->value, false), true, operand.offset};
  return {constant(variable->value, Type::u64), false, operand.offset};
}

std::optional<std::size_t> Decoder::parameter_offset(const Operand& operand) const {
  const auto variable = symbols_.find_variable(operand.name);
  if (!variable || variable->space != ptx::Space::param) return {};
  return variable->value + static_cast<std::size_t>(operand.offset);
}

std::uint32_t Decoder::find_label(const std::string& name) const {
  const auto found = symbols_.find_label(name);
  if (!found) fail(fmt::format("there is no label {}", name));
  return *found;
}

std::uint32_t Decoder::label(std::size_t index) const {
  if (operand(index).kind != Operand::Kind::name) fail("a label is expected here");
  return find_label(operand(index).name);
}

std::vector<std::uint32_t> Decoder::branch_targets(std::size_t index) const {
  const auto* names = symbols_.find_branch_targets(operand(index).name);
  if (names == nullptr) fail(fmt::format("{} is no list of .branchtargets", operand(index).name));
  std::vector<std::uint32_t> targets;
  for (const std::string& name : *names) targets.push_back(find_label(name));
  return targets;
}

Slot Decoder::constant(std::uint64_t value, Type type) {
  return symbols_.preset(PresetSlot::What::constant, truncate(value, type), is_wide(type));
}

Slot Decoder::scratch(Type type) { return symbols_.scratch(is_wide(type)); }

}  // namespace jit::emulator
