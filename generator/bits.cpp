#include <jit/bits.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/kernels/fixed_bits.h"

namespace jit {
namespace {

// Spec fields that decide the bits of a query's result; other fields only say how calls pass it.
constexpr std::array<std::string_view, 9> deciding_fields = {
    "dtype", "head_dim", "head_dim_v", "sinks", "split_keys", "q_positions", "k_positions", "mask", "score"};

}  // namespace

std::string bits_of(const AttentionSpec& spec, Arch arch) {
  validate(spec);
  const auto refuse = [](ErrorCode code, const std::string& field, const std::string& why) {
    throw Error(code, "bits_of", field, fmt::format("{}; bits depend on more than a text says", why));
  };
  if (spec.split_keys == 0) {
    refuse(ErrorCode::invalid_spec, "spec.split_keys",
           "spec.split_keys = 0: sums depend on config and batch; 4096 fixes their order");
  }
  if (const std::string reason = unfixed_bits(spec); !reason.empty()) {
    refuse(ErrorCode::invalid_spec, "spec." + reason.substr(0, reason.find(' ')), "spec." + reason);
  }
  const std::vector<Arch>& archs = known_archs();
  if (std::find(archs.begin(), archs.end(), arch) == archs.end()) {
    refuse(ErrorCode::unsupported_device, "device",
           fmt::format("device = {}: no kernels are written for it", to_string(arch)));
  }
  std::string bits = fmt::format("bits {} on {}, tile_kv = {}, softmax_scale = {:a}", bits_version,
                                 to_string(arch), fixed_bits_tile(spec, arch), spec.scale());
  for (const SpecField& field : spec_fields()) {
    if (std::find(deciding_fields.begin(), deciding_fields.end(), field.name) != deciding_fields.end())
      bits += fmt::format(", {} = {}", field.name, key_text(field, spec));
  }
  if (!spec.output.is_none())
    bits += fmt::format(", output = {} {:016x}", spec.output.to_string(), spec.output.hash());
  return bits;
}

std::string bits_of(const AttentionSpec& spec, const DeviceInfo& device) {
  return bits_of(spec, native_arch(device));
}

}  // namespace jit
