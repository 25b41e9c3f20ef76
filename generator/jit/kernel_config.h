// How a kernel does its work: the axes that the tuner searches. The result is the same for every config up to
// rounding.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace jit {

/// How tiles lie in shared memory.
enum class Swizzle {
  none,        ///< row-major: ldmatrix meets bank conflicts
  xor_chunks,  ///< 16-byte chunks XORed with the row: conflict-free without padding
};

/// When the accumulated output is rescaled to a new row maximum.
enum class Rescale {
  always,  ///< at every tile
  lazy,    ///< once a maximum has grown by more than 2^8
};

/// One row per field in `config_fields()`, which emits, prints and parses them.
struct KernelConfig {
  int tile_q = 128;
  int tile_kv = 64;
  int warps = 4;
  int stages_k = 2;
  int stages_v = 1;
  Swizzle swizzle = Swizzle::xor_chunks;
  int ldmatrix_matrices = 4;
  bool q_in_registers = false;
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
  int (*get)(const KernelConfig&);
  void (*set)(KernelConfig&, int);

  /// The value as a person writes it: "128", "xor_chunks", "true".
  std::string print(const KernelConfig& config) const;
  /// The value as C++: "128", "Swizzle::xor_chunks", "true".
  std::string emit(const KernelConfig& config) const;
};

std::span<const ConfigField> config_fields();

/// "tile_q=128 tile_kv=64 …", every field in order.
std::string to_string(const KernelConfig& config);

/// Reads what to_string writes; fields that are left out keep the values of `base`. Throws Error
/// invalid_argument for an unknown field (listing the known ones) or value. Whether the config is legal for a
/// spec is `config_rejection`'s matter.
KernelConfig parse_config(std::string_view text, const KernelConfig& base = {});

}  // namespace jit
