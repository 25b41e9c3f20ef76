/// @file
/// What launches on an emulated device did: findings, counts, annotated PTX; and how to give one up. A real
/// GPU tells nothing and goes on to the end.
///
/// @code
/// jit::use_device("emulated:sm_90a");  // before the first use of a device
/// const jit::TraceScope trace;
/// jit::attention({})({.q = q, .k = k, .v = v, .o = o}, stream);
/// const jit::LaunchTrace& launch = trace.launches().back();
/// assert(launch.findings().empty() && launch.warp_instructions() > 0 && !launch.is_cooperative());
/// std::printf("%s took %.1f s\n", launch.kernel().c_str(), launch.seconds());
/// assert(launch.counts_json().starts_with("{"));
/// std::puts(launch.listing().substr(0, 1000).c_str());  // PTX with counts of each line
/// @endcode
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace jit {

/// One launch of a kernel. Immutable, cheap to copy, thread safe.
class LaunchTrace {
 public:
  struct Record;
  /// Made by the emulator.
  explicit LaunchTrace(std::shared_ptr<const Record> record) : record_(std::move(record)) {}

  /// Name of the kernel.
  const std::string& kernel() const;
  /// Whether all of its blocks were to run at the same time (CU_LAUNCH_ATTRIBUTE_COOPERATIVE).
  bool is_cooperative() const;
  /// The errors that the emulator found, such as data races: one sentence each, with the place. At most 64.
  std::vector<std::string> findings() const;
  /// Instructions that warps executed.
  std::uint64_t warp_instructions() const;
  /// Time that the host took.
  double seconds() const;
  /// Totals, totals by instruction class and a row for each source line, as one JSON object.
  std::string counts_json() const;
  /// The kernel's PTX with counts in front of each line that was executed.
  std::string listing() const;

 private:
  std::shared_ptr<const Record> record_;
};

/// Collects the launches of this thread on emulated devices while the scope lasts, including failed ones, but not
/// interrupted ones. Use on one thread, nest like scopes; an outer scope also collects the launches of an inner one.
class TraceScope {
 public:
  TraceScope();
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  /// In the order they ran in.
  const std::vector<LaunchTrace>& launches() const { return launches_; }

 private:
  friend class TraceScopes;
  TraceScope* const outer_;
  std::vector<LaunchTrace> launches_;
};

/// Lets the launches that this thread makes on emulated devices be given up while the scope lasts: each asks
/// `is_interrupted` some fifty times a second, in this thread, and when that returns true fails soon after
/// with Error launch_failed, which names the kernel. What the launch has written stays, the device stays
/// usable. `is_interrupted` must neither throw nor use the device, nor wait for a thread that does. Use on
/// one thread, nest like scopes; launches of an inner scope ask the outer one, too. (Without a scope
/// JIT_ATTENTION_EMULATOR_STEP_LIMIT alone ends a kernel that goes on for ever.)
class InterruptScope {
 public:
  /// Begins the scope. `is_interrupted` is called as above.
  explicit InterruptScope(std::function<bool()> is_interrupted);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  friend class InterruptScopes;
  InterruptScope* const outer_;
  const std::function<bool()> is_interrupted_;
};

}  // namespace jit
