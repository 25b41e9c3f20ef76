// Devices that packs are made for.
#include <jit/pack.h>

#include <algorithm>

#include <jit/device.h>

namespace jit {
namespace {

struct KnownGpus {
  int major, minor;
  std::vector<int> multiprocessors;
};

// SM counts of GPUs that are widely used for serving, from NVIDIA's data sheets.
const std::vector<KnownGpus>& known_gpus() {
  static const std::vector<KnownGpus> gpus = {
      {8, 0, {108, 56}},       // A100, A30
      {8, 6, {84, 82, 72}},    // A40 and RTX A6000, RTX 3090, A10
      {8, 9, {128, 142, 58}},  // RTX 4090, L40 and L40S, L4
      {9, 0, {132, 114, 78}},  // H100 SXM and H200, H100 PCIe, H20
      {12, 0, {170, 188}},     // RTX 5090, RTX PRO 6000
      {12, 1, {48}},           // GB10
  };
  return gpus;
}

}  // namespace

PackTarget parse_pack_target(std::string_view text) {
  constexpr std::string_view emulated = "emulated:";
  PackTarget target{.arch = {}, .emulated = text.starts_with(emulated), .multiprocessors = {}};
  const Arch arch = parse_arch(target.emulated ? text.substr(emulated.size()) : text);
  target.arch = native_arch({.arch = arch, .emulated = target.emulated});
  const auto known = std::find_if(known_gpus().begin(), known_gpus().end(), [&](const KnownGpus& gpus) {
    return gpus.major == arch.major && gpus.minor == arch.minor;
  });
  // An emulated device has the usual number of SMs.
  if (target.emulated || known == known_gpus().end()) {
    target.multiprocessors = {usual_sm_count(arch)};
  } else {
    target.multiprocessors = known->multiprocessors;
  }
  return target;
}

}  // namespace jit
