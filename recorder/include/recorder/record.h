// A device's results for Blackwell's new instructions.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace jit::conformance {

/// Opens a device in a separate process and returns its ordinal. Throws std::invalid_argument, or Error
/// invalid_argument, when there is no such device.
using OpenDevice = std::function<int()>;

struct Complaint {
  std::string program;  ///< its name, such as "add.rn.f32x2"
  std::string text;
};

struct Answers {
  std::string device;  ///< "NVIDIA H200, driver for CUDA 12.8"
  std::string target;  ///< of the programs' PTX: "sm_100a"
  std::size_t programs = 0;
  std::vector<Complaint> failed;
  std::string file;  ///< serialized results
};

/// Runs all programs of the device's architecture, each of which may hang or fault. Throws
/// std::invalid_argument for a missing device or an architecture without such programs, std::runtime_error
/// without a driver.
Answers ask_device(const OpenDevice& open);

struct Differences {
  std::string recorded_on;  ///< Answers::device
  std::vector<Complaint> programs;
};

/// Differences from Answers::file of another run, called `name`. Throws std::invalid_argument for another
/// kind of file or another target.
Differences differences(const Answers& now, std::string_view file, const std::string& name);
/// Throws the same unless `file` is an Answers::file.
void check_answers(std::string_view file, const std::string& name);

}  // namespace jit::conformance
