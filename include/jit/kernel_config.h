// How a kernel does its work: the axes that the tuner searches. The result is the same for every config up to
// rounding.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <jit/options.h>

namespace jit {

/// Which instructions multiply, and with them the kind of kernel.
enum class Mainloop {
  mma_sync,  ///< cp.async, ldmatrix, mma.sync: sm_80 and later (templates/forward_mma_sync/kernel.cuh)
  wgmma,     ///< TMA, wgmma, warp specialisation: sm_90a (templates/forward_wgmma/kernel.cuh)
};

/// One row per field in `config_fields()`, which emits, prints and parses them. Fields that belong to the
/// other mainloop keep their defaults.
struct KernelConfig {
  Mainloop mainloop = Mainloop::mma_sync;
  int tile_q = 128;
  int tile_kv = 64;
  int warps = 4;     // mma_sync
  int stages_q = 1;  // wgmma
  int stages_k = 2;
  int stages_v = 1;
  Swizzle swizzle = Swizzle::xor_chunks;  // mma_sync
  int ldmatrix_matrices = 4;              // mma_sync
  bool q_in_registers = false;
  bool p_in_registers = true;                   // wgmma
  bool separate_o = false;                      // wgmma
  bool direct_o = false;                        // wgmma
  bool overlap = true;                          // wgmma
  WarpgroupOrder order = WarpgroupOrder::free;  // wgmma
  bool persistent = true;                       // wgmma
  bool dependent_launch = false;                // wgmma
  int polynomial_exp2 = 0;                      // wgmma
  Rescale rescale = Rescale::lazy;
  int blocks_per_sm = 1;

  bool operator==(const KernelConfig&) const = default;
};

/// One field of KernelConfig: the single place that knows its name, type, unit and meaning.
struct ConfigField {
  std::string_view name;
  std::string_view cpp_type;  ///< in generated source
  std::string_view doc;       ///< one phrase with unit, becomes a comment in generated source
  /// Names of the values, when they are not numbers; the index is the value.
  std::span<const std::string_view> value_names;
  /// The mainloop that it belongs to; nothing: both.
  std::optional<Mainloop> mainloop;
  int (*get)(const KernelConfig&);
  void (*set)(KernelConfig&, int);

  bool applies_to(const KernelConfig& config) const { return !mainloop || *mainloop == config.mainloop; }

  /// The value as a person writes it: "128", "xor_chunks", "true".
  std::string print(const KernelConfig& config) const;
  /// The value as C++: "128", "Swizzle::xor_chunks", "true".
  std::string emit(const KernelConfig& config) const;
};

std::span<const ConfigField> config_fields();

/// "mainloop=mma_sync tile_q=128 tile_kv=64 …", every field of the config's mainloop in order.
std::string to_string(const KernelConfig& config);

/// Reads what to_string writes; fields that are left out keep the values of `base`. A field of one mainloop
/// alone implies `mainloop`; fields of the other one go back to their defaults. Throws Error
/// invalid_argument for an unknown field (listing the known ones), a value that it cannot have, or a field of
/// the other mainloop. Whether the config is legal for a
/// spec is `config_rejection`'s matter.
KernelConfig parse_config(std::string_view text, const KernelConfig& base = {});

}  // namespace jit
