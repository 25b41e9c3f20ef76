// Pieces of PTX that tests of mbarriers and bulk copies share, and what they ask of a launch's findings.
#pragma once

#include <string>

#include <emulator/launch.h>

namespace jit::emulator::testing {

/// All findings, a line each; empty when there are none.
inline std::string findings_of(const LaunchResult& result) {
  std::string text;
  for (const Finding& finding : result.findings) text += to_string(finding) + "\n";
  return text;
}

inline bool has_finding(const LaunchResult& result, FindingKind kind) {
  for (const Finding& finding : result.findings) {
    if (finding.kind == kind) return true;
  }
  return false;
}

/// The message of the first finding of a kind; empty when there is none.
inline std::string message_of(const LaunchResult& result, FindingKind kind) {
  for (const Finding& finding : result.findings) {
    if (finding.kind == kind) return finding.message;
  }
  return {};
}

/// A loop that waits for the phase of `parity` of the mbarrier at `address`; `label` is its own.
inline std::string wait_for(const std::string& address, const std::string& parity, const std::string& label) {
  return label + ":\n  mbarrier.try_wait.parity.shared::cta.b64 %p31, [" + address + "], " + parity +
         ";\n  @!%p31 bra " + label + ";\n";
}

/// Initializes the mbarrier of the .shared variable `name` for `count` arrivals, by thread 0, and lets all of
/// the block and the async proxy see it.
inline std::string init_by_first(const std::string& name, int count) {
  return "  setp.eq.u32 %p30, %r60, 0;\n  @%p30 mbarrier.init.shared::cta.b64 [" + name + "], " +
         std::to_string(count) + ";\n  fence.mbarrier_init.release.cluster;\n  bar.sync 0;\n";
}

}  // namespace jit::emulator::testing
