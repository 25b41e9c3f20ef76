// How a kernel does its work: the axes that the tuner searches. The result is the same for every config up to
// rounding.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace jit {

/// Which instructions multiply, and with them the kind of kernel.
enum class Mainloop {
  mma_sync,  ///< cp.async, ldmatrix, mma.sync: sm_80 and later (templates/attention_forward_sm80.cuh)
  wgmma,     ///< TMA, wgmma, warp specialisation: sm_90a (templates/attention_forward_sm90.cuh)
};

/// How tiles lie in shared memory.
enum class Swizzle {
  none,        ///< row-major: ldmatrix meets bank conflicts
  xor_chunks,  ///< 16-byte chunks XORed with the row: conflict-free without padding
};

/// When the accumulated output is rescaled to a new row maximum.
enum class Rescale {
  always,  ///< at every tile
  lazy,    ///< once a maximum has grown by more than 2^8
  /// Once a sum of exponentials has grown beyond 2^40 (fp16: 2^14): only then are maxima looked for, and the
  /// tile is computed again. mainloop = wgmma only.
  on_overflow,
};

/// How the consumer warpgroups' use of tensor cores and of exponentials is put in order.
enum class WarpgroupOrder {
  free,          ///< as it comes
  ping_pong,     ///< they issue their multiplications in turns; with overlap only
  softmax_lock,  ///< one at a time computes exponentials
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
