#include <recorder/record.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "emulator/micro_kernels/blackwell.h"
#include "emulator/micro_kernels/comparison.h"
#include "emulator/micro_kernels/recording.h"
#include "recorder/micro_worker.h"

namespace jit::conformance {
namespace {

// Besides the programs' results, a file holds the device's name and the target of their PTX.
constexpr const char *device_entry = "device", *target_entry = "target";
constexpr std::chrono::seconds patience{60};  // with one program

Recording of_text(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {.output = {bytes.begin(), bytes.end()}};
}

std::string text_of(const Recordings& recordings, const char* entry) {
  const std::vector<std::byte>& bytes = recordings.at(entry).output;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Recordings parse_answers(std::string_view file, const std::string& name) {
  Recordings recordings;
  try {
    recordings = parse_recordings(file, name);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
  if (!recordings.contains(device_entry) || !recordings.contains(target_entry))
    throw std::invalid_argument(name + " is no file of jit-attention record");
  return recordings;
}

// The first elements of a kernel that differ from the recording; empty: none.
std::string difference(const MicroKernel& kernel, const Recordings& now, const Recordings& then) {
  const auto ran = now.find(kernel.name), recorded = then.find(kernel.name);
  if (ran == now.end() && recorded == then.end()) return "";
  if (ran == now.end()) return "recorded, and failed now";
  if (recorded == then.end()) return "not recorded";
  if (!is_of(recorded->second, kernel)) return "recorded of another version of this program";
  const Mismatches mismatches = compare(kernel, recorded->second.output, ran->second.output);
  if (mismatches.count == 0) return "";
  std::string text = fmt::format("{} of {} elements differ, by at most {} ulp\n{}", mismatches.count,
                                 mismatches.of, mismatches.largest_ulps, mismatches.first);
  text.pop_back();
  return text;
}

}  // namespace

Answers ask_device(const OpenDevice& open) {
  const MicroDevice device = find_device(open);
  const std::vector<Family> families = blackwell_families(device.target);
  std::vector<const MicroKernel*> kernels;
  for (const Family& family : families)
    for (const MicroKernel& kernel : family.kernels) kernels.push_back(&kernel);
  Answers answers;
  answers.device = device.name;
  answers.target = device.target;
  answers.programs = kernels.size();
  Recordings recordings = {{device_entry, of_text(device.name)}, {target_entry, of_text(device.target)}};
  run_in_worker(open, kernels, patience, [&](std::size_t index, MicroResult result) {
    const MicroKernel& kernel = *kernels[index];
    if (result.error.empty()) {
      recordings[kernel.name] = {hash(kernel.ptx), hash_of_contents(kernel), std::move(result.output)};
    } else {
      std::replace(result.error.begin(), result.error.end(), '\n', ' ');
      answers.failed.push_back({kernel.name, "failed: " + result.error});
    }
  });
  answers.file = to_text(recordings);
  return answers;
}

Differences differences(const Answers& now, std::string_view file, const std::string& name) {
  const Recordings recorded = parse_answers(file, name), own = parse_answers(now.file, "");
  if (const std::string target = text_of(recorded, target_entry); target != now.target) {
    throw std::invalid_argument(
        fmt::format("{0} is of {1}, and the device is {2}; compare with --device emulated:{1}", name, target,
                    now.target));
  }
  Differences result;
  result.recorded_on = text_of(recorded, device_entry);
  for (const Family& family : blackwell_families(now.target)) {
    for (const MicroKernel& kernel : family.kernels) {
      if (std::string text = difference(kernel, own, recorded); !text.empty())
        result.programs.push_back({kernel.name, std::move(text)});
    }
  }
  return result;
}

void check_answers(std::string_view file, const std::string& name) { parse_answers(file, name); }

}  // namespace jit::conformance
