// Tests that need a second process run themselves: the child's part is a disabled test of the same program.
#pragma once

#include <string>

namespace jit::testing {

struct ChildResult {
  int status = -1;     ///< exit status; 0: its test passed
  std::string output;  ///< stdout
};

/// Runs the disabled test `name` of this program in the folder `folder`. `environment` is what env(1) is
/// given.
ChildResult run_child(const std::string& name, const std::string& environment = "",
                      const std::string& folder = "/");

}  // namespace jit::testing
