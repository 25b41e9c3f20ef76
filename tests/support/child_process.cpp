#include "tests/support/child_process.h"

#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

namespace jit::testing {

ChildResult run_child(const std::string& name, const std::string& environment, const std::string& folder) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      fmt::format("cd '{}' && env {} '{}' --gtest_also_run_disabled_tests --gtest_filter='{}'", folder,
                  environment, self, name);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  ChildResult result;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) result.output += static_cast<char>(c);
  result.status = pclose(pipe);
  return result;
}

}  // namespace jit::testing
