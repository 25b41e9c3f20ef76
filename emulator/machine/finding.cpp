#include <emulator/finding.h>

#include <stdexcept>

#include <fmt/format.h>

#include "machine/kernel.h"

namespace jit::emulator {

std::string_view to_string(FindingKind kind) {
  switch (kind) {
    case FindingKind::data_race:
      return "data race";
    case FindingKind::missing_proxy_fence:
      return "missing proxy fence";
    case FindingKind::access_in_flight:
      return "access in flight";
    case FindingKind::out_of_bounds:
      return "out of bounds";
    case FindingKind::misaligned:
      return "misaligned";
    case FindingKind::uninitialized_read:
      return "uninitialized read";
    case FindingKind::uninitialized_shared_read:
      return "uninitialized read of shared memory";
    case FindingKind::barrier_divergence:
      return "barrier divergence";
    case FindingKind::barrier_misuse:
      return "barrier misuse";
    case FindingKind::deadlock:
      return "deadlock";
    case FindingKind::wrong_transaction_count:
      return "wrong transaction count";
    case FindingKind::register_limit:
      return "register limit";
    case FindingKind::unfinished_copy:
      return "unfinished copy";
    case FindingKind::bad_descriptor:
      return "bad descriptor";
    case FindingKind::illegal_instruction:
      return "illegal instruction";
    case FindingKind::step_limit:
      return "step limit";
    case FindingKind::dropped:
      return "dropped";
  }
  return "unknown";
}

std::vector<FindingKind> finding_kinds() {
  std::vector<FindingKind> kinds;
  for (int i = 0; i <= static_cast<int>(FindingKind::dropped); ++i)
    kinds.push_back(static_cast<FindingKind>(i));
  return kinds;
}

FindingKind parse_finding_kind(std::string_view name) {
  std::string names;
  for (const FindingKind kind : finding_kinds()) {
    if (to_string(kind) == name) return kind;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(kind));
  }
  throw std::invalid_argument(fmt::format("'{}' is no kind of finding; these are: {}", name, names));
}

std::string to_string(const Finding& finding) {
  const std::string lane = finding.lane < 0 ? std::string() : fmt::format(" lane {}", finding.lane);
  const std::string place =
      finding.file.empty() ? fmt::format("PTX line {}", finding.ptx_line)
                           : fmt::format("{}:{} (PTX line {})", finding.file, finding.line, finding.ptx_line);
  return fmt::format("{} in {} block ({}, {}, {}) warp {}{} at {}: {}", to_string(finding.kind),
                     finding.kernel, finding.block[0], finding.block[1], finding.block[2], finding.warp, lane,
                     place, finding.message);
}

std::string place_of(const Kernel& kernel, std::uint32_t pc) {
  if (pc >= kernel.info.size()) return "the end of the kernel";
  const InstructionInfo& info = kernel.info[pc];
  const auto file = info.source ? static_cast<std::size_t>(info.source->file) : kernel.files.size();
  if (file >= kernel.files.size()) return fmt::format("PTX line {}", info.ptx_line);
  return fmt::format("{}:{}", kernel.files[file], info.source->line);
}

std::string_view to_string(InstructionClass kind) {
  switch (kind) {
    case InstructionClass::integer:
      return "integer";
    case InstructionClass::floating:
      return "floating";
    case InstructionClass::special_function:
      return "special_function";
    case InstructionClass::conversion:
      return "conversion";
    case InstructionClass::move:
      return "move";
    case InstructionClass::predicate:
      return "predicate";
    case InstructionClass::control:
      return "control";
    case InstructionClass::global_memory:
      return "global_memory";
    case InstructionClass::shared_memory:
      return "shared_memory";
    case InstructionClass::local_memory:
      return "local_memory";
    case InstructionClass::param_memory:
      return "param_memory";
    case InstructionClass::atomic:
      return "atomic";
    case InstructionClass::async_copy:
      return "async_copy";
    case InstructionClass::barrier:
      return "barrier";
    case InstructionClass::warp_exchange:
      return "warp_exchange";
    case InstructionClass::matrix_load:
      return "matrix_load";
    case InstructionClass::matrix:
      return "matrix";
    case InstructionClass::wgmma:
      return "wgmma";
    case InstructionClass::other:
      return "other";
  }
  return "other";
}

}  // namespace jit::emulator
