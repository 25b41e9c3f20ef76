#include "ptx/scopes.h"

#include <utility>

#include <fmt/format.h>

namespace jit::emulator::ptx {
namespace {

// Bounds repeated scans: leaving a block visits its instructions.
constexpr std::size_t deepest_scope = 64;
constexpr std::size_t most_digits = 9;

struct Numbered {
  std::string_view prefix;
  std::uint64_t number = 0;
};

// "%r12" as "%r" and 12; an empty prefix when the name has no number, or a very large one.
Numbered split_number(std::string_view name) {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  Numbered result;
  if (digits == name.size() || name.size() - digits > most_digits) return result;
  result.prefix = name.substr(0, digits);
  for (const char digit : name.substr(digits)) {
    result.number = result.number * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  return result;
}

[[noreturn]] void fail_duplicate(std::string_view name, int line, int first_line) {
  throw PtxError(line, fmt::format("{} is declared a second time in this block; the first is on line {}",
                                   name, first_line));
}

}  // namespace

Scopes::Scopes(int line) { scopes_.push_back({.line = line}); }

void Scopes::open(int line, const Function& function) {
  if (scopes_.size() > deepest_scope) {
    throw PtxError(line, fmt::format("blocks nested deeper than {} levels", deepest_scope));
  }
  scopes_.push_back({.line = line,
                     .number = ++opened_,
                     .first_instruction = function.body.size(),
                     .first_targets = targets_.size()});
}

bool Scopes::close(Function& function) {
  const Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  if (scope.renames) --renaming_;
  if (scopes_.empty()) return false;
  if (!scope.has_labels) return true;
  const auto rename = [&scope](std::string& name) {
    const auto found = scope.names.find(name);
    if (found != scope.names.end() && found->second.is_label) name = found->second.final_name;
  };
  for (std::size_t i = scope.first_instruction; i < function.body.size(); ++i) {
    for (Operand& operand : function.body[i].operands) {
      if (operand.kind == Operand::Kind::name) rename(operand.name);
    }
  }
  for (std::size_t i = scope.first_targets; i < targets_.size(); ++i) {
    for (std::string& target : *targets_[i]) rename(target);
  }
  return true;
}

std::string Scopes::unique(std::string_view name) const {
  // No PTX name contains '@'.
  const int number = scopes_.back().number;
  return number == 0 ? std::string(name) : fmt::format("{}@{}", name, number);
}

void Scopes::mark_renaming() {
  if (!std::exchange(scopes_.back().renames, true)) ++renaming_;
}

void Scopes::add(std::string_view name, Name entry) {
  Scope& scope = scopes_.back();
  const int line = entry.line;
  const auto [place, is_new] = scope.names.try_emplace(std::string(name), std::move(entry));
  if (!is_new) fail_duplicate(name, line, place->second.line);
  const Numbered numbered = split_number(name);
  if (numbered.prefix.empty()) return;
  const auto range = scope.ranges.find(numbered.prefix);
  if (range != scope.ranges.end() && numbered.number < static_cast<std::uint64_t>(range->second.count)) {
    fail_duplicate(name, line, range->second.line);
  }
  Single single{numbered.number, std::string(name), line};
  Single& least = scope.least_singles.try_emplace(std::string(numbered.prefix), single).first->second;
  if (single.number < least.number) least = std::move(single);
}

std::string Scopes::declare(std::string_view name, int line) {
  std::string final_name = unique(name);
  add(name, {final_name, line, false});
  if (scopes_.back().number != 0) mark_renaming();
  return final_name;
}

std::string Scopes::declare_static(std::string_view name, int line, std::string_view function) {
  std::string final_name = fmt::format("{}@{}@{}", name, function, scopes_.back().number);
  add(name, {final_name, line, false});
  mark_renaming();
  return final_name;
}

std::string Scopes::declare_label(std::string_view name, int line) {
  std::string final_name = unique(name);
  add(name, {final_name, line, true});
  scopes_.back().has_labels = true;
  return final_name;
}

std::string Scopes::declare_range(std::string_view prefix, int count, int line) {
  if (prefix.back() >= '0' && prefix.back() <= '9') {
    throw PtxError(
        line, fmt::format("{}<{}>: the emulator knows no ranges of registers whose name ends in a digit; "
                          "declare them one by one",
                          prefix, count));
  }
  Scope& scope = scopes_.back();
  std::string final_prefix(prefix);
  if (scope.number != 0) final_prefix = fmt::format("{}@{}_", prefix, scope.number);
  const auto [place, is_new] =
      scope.ranges.try_emplace(std::string(prefix), Range{final_prefix, count, line});
  if (!is_new) fail_duplicate(prefix, line, place->second.line);
  const auto single = scope.least_singles.find(prefix);
  if (single != scope.least_singles.end() && single->second.number < static_cast<std::uint64_t>(count)) {
    fail_duplicate(single->second.name, line, single->second.line);
  }
  if (scope.number != 0) mark_renaming();
  return final_prefix;
}

void Scopes::resolve(std::string& name) const {
  if (renaming_ == 0 || name.empty()) return;
  const Numbered numbered = split_number(name);
  for (std::size_t i = scopes_.size(); i-- > 0;) {
    const Scope& scope = scopes_[i];
    if (!scope.renames) continue;
    if (const auto found = scope.names.find(name); found != scope.names.end()) {
      if (!found->second.is_label) name = found->second.final_name;
      return;
    }
    if (numbered.prefix.empty()) continue;
    if (const auto found = scope.ranges.find(numbered.prefix);
        found != scope.ranges.end() && numbered.number < static_cast<std::uint64_t>(found->second.count)) {
      // `numbered` refers to `name`.
      name = found->second.final_prefix + std::to_string(numbered.number);
      return;
    }
  }
}

void Scopes::resolve(Operand& operand) const {
  if (renaming_ == 0) return;
  resolve(operand.name);
  for (Operand& element : operand.elements) resolve(element);
}

}  // namespace jit::emulator::ptx
