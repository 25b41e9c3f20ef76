// Shared by tests of attention on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <jit/attention.h>
#include <jit/device.h>

#include <gtest/gtest.h>

#include "runtime/driver_api.h"
#include "tests/device/wanted_device.h"
#include "tests/support/attention_run.h"
#include "tests/support/seed.h"
#include "tests/support/test_stream.h"

namespace jit::testing {

/// A kernel and a problem that a test runs.
struct KernelCase {
  AttentionCase problem;
  std::optional<KernelConfig> config = {};  ///< nothing: the cost model's for these sizes
};

/// Compiles and loads on all cores, so that what follows finds its kernels in the memory of `context`.
/// Failures are left to whoever runs the case.
void prepare_all(const std::vector<KernelCase>& cases, const Context& context);

class GpuTest : public ::testing::Test {
 protected:
  /// Skips with a sentence where there is neither a GPU nor an emulated device that was asked for.
  void SetUp() override;
  /// Expects that counters and mailboxes of the default stream are as launches must leave them.
  void TearDown() override;

  /// A length, or another size that time grows with: `emulated` on an emulated device, which is slow.
  int sized(int real, int emulated) const { return device_.emulated ? emulated : real; }

  /// On an emulated device, where compiling the kernels takes longest, every `count`-th of what a test goes through, as
  /// reference::is_in_this_run() has it. On a GPU all.
  bool is_in_this_run(int index, std::uint64_t count) const {
    return !device_.emulated || reference::is_in_this_run(static_cast<std::uint64_t>(index), count);
  }

  /// The config, with one block a multiprocessor where several do not fit the device's shared memory: sm_120 has 100 KB.
  KernelConfig fitted(const AttentionSpec& spec, KernelConfig config) const;

  /// Keeps everything in memory and tunes nothing; lives as long as the program.
  static Context& context();

  /// Runs the case on the default stream and expects what the reference says.
  static void expect_right(const AttentionCase& problem, std::optional<KernelConfig> config = {});
  /// Checks many cases, whose kernels are compiled on all cores.
  static void expect_all_right(const std::vector<KernelCase>& cases);
  /// Checks the cases that are in this run, every `count`-th on an emulated device.
  void expect_some_right(const std::vector<KernelCase>& cases, std::uint64_t count) const;

  DeviceInfo device_;
};

}  // namespace jit::testing
