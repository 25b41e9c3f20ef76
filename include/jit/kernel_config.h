/// @file
/// Kernel configs: the parameters that the tuner searches. Results of different configs differ only by rounding. Each
/// kernel family has its own struct; a config is one of these.
///
/// @code
/// const jit::KernelConfig config = jit::parse_config("family=forward_wgmma tile_q=128 tile_kv=96");
/// assert(jit::family_name(config) == "forward_wgmma" && std::get<jit::ForwardWgmma>(config).tile_kv == 96);
/// for (const jit::ConfigValue& value : jit::config_values(config))
///   std::printf("%s = %s\n", std::string(value.name).c_str(), value.text.c_str());
/// assert(jit::parse_config(jit::to_string(config)) == config);
/// const jit::PlanConfigs gradients{jit::BackwardDqMmaSync{}, jit::BackwardDkvMmaSync{}};
/// assert(jit::parse_plan_configs(jit::to_string(gradients)) == gradients);
/// for (const jit::FamilyDoc& family : jit::family_docs()) std::printf("%s\n", std::string(family.name).c_str());
/// @endcode
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <jit/options.h>

namespace jit {

/// cp.async, ldmatrix and mma.sync: sm_80 and later, any tensor (templates/forward_mma_sync).
struct ForwardMmaSync {
  int tile_q = 128;                 ///< queries per block
  int tile_kv = 64;                 ///< keys per step
  int warps = 4;                    ///< per block; each owns tile_q / warps queries
  int stages_k = 2;                 ///< buffers for K tiles
  int stages_v = 1;                 ///< buffers for V tiles
  bool q_in_registers = false;      ///< Q stays in registers, else in shared memory
  Rescale rescale = Rescale::lazy;  ///< when the output is rescaled to a new row maximum
  int blocks_per_sm = 1;            ///< that must fit on a multiprocessor: caps the registers

  bool operator==(const ForwardMmaSync&) const = default;  ///< member by member
};

/// TMA, wgmma and specialized warps: sm_90a, tensors that TMA can map (templates/forward_wgmma).
struct ForwardWgmma {
  int tile_q = 128;                             ///< queries per block
  int tile_kv = 64;                             ///< keys per step
  int stages_q = 1;                             ///< buffers for Q tiles
  int stages_k = 2;                             ///< buffers for K tiles
  int stages_v = 1;                             ///< buffers for V tiles
  OutputPlace output = OutputPlace::over_q;     ///< the way of O from registers to memory
  WarpgroupOrder order = WarpgroupOrder::free;  ///< the order of consumer warpgroups
  Rescale rescale = Rescale::lazy;              ///< when the output is rescaled to a new row maximum
  int blocks_per_sm = 1;                        ///< that must fit on a multiprocessor: caps the registers
  /// The requests that it computes: all, or, in a call of two kernels, those of many queries.
  Requests requests = Requests::all;
  int promote_every = 0;  ///< tiles of keys after which sums of fp8 products move to floats; 0: they do not
  int stages_stored = 0;  ///< buffers for tiles of keys of 8 bits as they are stored, and as many for values
  /// Warps that upcast the stored tiles, or that transpose values beside 8-bit q: 2 of the producer
  /// warpgroup, or 4 of a warpgroup of their own.
  int converter_warps = 0;
  bool upcast_ahead = false;  ///< a kernel before this one upcasts all keys and values, into a workspace
  bool dropout_mask_ahead = false;  ///< one draws which scores dropout keeps, into a workspace

  bool operator==(const ForwardWgmma&) const = default;  ///< member by member
};

/// cp.async or TMA, and mma.sync, keys split over blocks: sm_80 and later, any sequences (templates/forward_split_kv).
struct ForwardSplitKv {
  int row_warps = 1;                 ///< warps side by side along rows
  int warp_rows = 16;                ///< of each of these: 16, or 8 over keys of 8 or 4 bits
  int key_warps = 4;                 ///< warps that share the keys of a tile
  int tile_kv = 64;                  ///< keys per step
  int stages = 3;                    ///< buffers for tiles of keys and values
  Copies copies = Copies::cp_async;  ///< the way of tiles of keys and values to shared memory
  int blocks_per_sm = 2;             ///< that must fit on a multiprocessor: caps the registers

  bool operator==(const ForwardSplitKv&) const = default;  ///< member by member
};

/// TMA and wgmma, keys split over blocks: sm_90a, any sequences in tensors that TMA can map
/// (templates/forward_split_wgmma).
struct ForwardSplitWgmma {
  int tile_rows = 128;    ///< rows per block: queries of all heads that share a KV head
  int tile_kv = 32;       ///< keys per step
  int stages_q = 1;       ///< buffers for tiles of queries
  int stages = 2;         ///< buffers for tiles of keys, and as many for values
  int blocks_per_sm = 1;  ///< that must fit on a multiprocessor: caps the registers
  /// The requests that it computes: all, or, in a call of two kernels, those of few queries.
  Requests requests = Requests::all;
  int stages_stored = 0;  ///< buffers for tiles of keys of 8 bits as they are stored, and as many for values

  bool operator==(const ForwardSplitWgmma&) const = default;  ///< member by member
};

/// cp.async and mma.sync, keys split over the blocks of a cluster: sm_90a, few queries and few keys
/// (templates/forward_split_cluster).
struct ForwardSplitCluster {
  int cluster = 8;        ///< blocks that share the keys of a tile of rows: 1, 2, 4, 8 or 16
  int block_warps = 4;    ///< warps of a block, each of which has keys of its own
  int tile_kv = 16;       ///< keys per step of a warp
  int stages = 4;         ///< buffers of a warp for tiles of keys and values
  int blocks_per_sm = 1;  ///< that must fit on a multiprocessor: caps the registers

  bool operator==(const ForwardSplitCluster&) const = default;  ///< member by member
};

/// TMA or cp.async, and wgmma, for values that are the first columns of keys, as multi-head latent attention has them:
/// sm_90a (templates/forward_mla_wgmma).
struct ForwardMlaWgmma {
  int stages = 2;  ///< tiles of keys that have room in shared memory; half a tile more where that fits
  Copies copies = Copies::tma;  ///< the way of keys to shared memory
  bool pair =
      false;  ///< two blocks convert half of a list's rows each, and send them to the other: for 128 query heads

  bool operator==(const ForwardMlaWgmma&) const = default;  ///< member by member
};

/// TMA and wgmma for head dims above 256: a warpgroup computes scores, and two have half of the columns of O each. sm_90a,
/// tensors that TMA can map (templates/forward_wide_wgmma).
struct ForwardWideWgmma {
  int stages_k = 8;  ///< buffers for panels of K

  bool operator==(const ForwardWideWgmma&) const = default;  ///< member by member
};

/// TMA, tcgen05 and tensor memory: sm_100a and sm_103a, tensors that TMA can map (templates/forward_tcgen05).
struct ForwardTcgen05 {
  int stages = 2;  ///< buffers for tiles of K, and for tiles of V

  bool operator==(const ForwardTcgen05&) const = default;  ///< member by member
};

/// TMA, ldmatrix and mma.sync by specialized warps: sm_120a and sm_121a, tensors that TMA can map
/// (templates/forward_mma_tma).
struct ForwardMmaTma {
  int tile_q = 128;  ///< queries per block
  int tile_kv = 64;  ///< keys per step
  int stages = 2;    ///< buffers for K tiles, and as many for V tiles

  bool operator==(const ForwardMmaTma&) const = default;  ///< member by member
};

/// Gradient of the queries with cp.async and mma.sync: sm_80 and later, any tensor (templates/backward_dq_mma_sync).
struct BackwardDqMmaSync {
  int tile_q = 64;        ///< queries per block
  int tile_kv = 64;       ///< keys per step
  int warps = 4;          ///< per block; each owns tile_q / warps queries
  int stages = 2;         ///< buffers for tiles of keys and values
  int blocks_per_sm = 1;  ///< that must fit on a multiprocessor: caps the registers

  bool operator==(const BackwardDqMmaSync&) const = default;  ///< member by member
};

/// Gradients of keys and values with cp.async and mma.sync: sm_80 and later, any tensor
/// (templates/backward_dkv_mma_sync).
struct BackwardDkvMmaSync {
  int tile_q = 64;        ///< queries per step
  int tile_kv = 64;       ///< keys per block
  int warps = 4;          ///< per block; each owns tile_kv / warps keys
  int stages = 2;         ///< buffers for tiles of queries
  bool separate = false;  ///< dK and dV are sums of different blocks, else of the same
  int blocks_per_sm = 1;  ///< that must fit on a multiprocessor: caps the registers

  bool operator==(const BackwardDkvMmaSync&) const = default;  ///< member by member
};

/// All gradients in one pass with TMA and wgmma: sm_90a, rows aligned to 16 bytes (templates/backward_wgmma).
struct BackwardWgmma {
  int stages = 2;              ///< buffers for tiles of queries
  bool deterministic = false;  ///< blocks take turns when they add to dQ
  /// A kernel before this one draws which scores dropout keeps, into a workspace.
  bool dropout_mask_ahead = false;
  bool pair = false;  ///< two blocks share a tile of keys and exchange dS: for head dims above 128

  bool operator==(const BackwardWgmma&) const = default;  ///< member by member
};

/// All gradients in one pass with TMA, tcgen05 and tensor memory: sm_100a and sm_103a, head dims up to 128, rows
/// aligned to 16 bytes (templates/backward_tcgen05).
struct BackwardTcgen05 {
  int stages = 2;              ///< buffers for tiles of queries
  bool deterministic = false;  ///< blocks take turns when they add to dQ

  bool operator==(const BackwardTcgen05&) const = default;  ///< member by member
};

/// Gradient of the queries with TMA and wgmma for head dims above 256: sm_90a, tensors that TMA can map
/// (templates/backward_dq_wide_wgmma).
struct BackwardDqWideWgmma {
  int panels = 6;  ///< buffers for panels of the operands of scores
  int parts = 2;   ///< buffers for parts of the operand of the sums

  bool operator==(const BackwardDqWideWgmma&) const = default;  ///< member by member
};

/// Gradients of keys and values with TMA and wgmma for head dims above 256, by pairs of blocks: sm_90a, tensors that TMA
/// can map (templates/backward_dkv_wide_wgmma).
struct BackwardDkvWideWgmma {
  int panels = 6;  ///< buffers for panels of the operands of scores
  int parts = 4;   ///< buffers for parts of the operand of the sums

  bool operator==(const BackwardDkvWideWgmma&) const = default;  ///< member by member
};

/// The list of kernel families: their order is that in which equal ones are tried.
using KernelConfig = std::variant<ForwardMmaSync, ForwardWgmma, ForwardSplitKv, ForwardSplitWgmma,
                                  ForwardSplitCluster, ForwardMlaWgmma, ForwardWideWgmma, ForwardMmaTma,
                                  ForwardTcgen05, BackwardDqMmaSync, BackwardDkvMmaSync, BackwardWgmma,
                                  BackwardTcgen05, BackwardDqWideWgmma, BackwardDkvWideWgmma>;

/// The kernel family of a config: "forward_wgmma".
std::string_view family_name(const KernelConfig& config);

/// "family=forward_mma_sync tile_q=128 tile_kv=64 …", every field in order.
std::string to_string(const KernelConfig& config);

/// The inverse of to_string; omitted fields keep the values of `base`. A field that only one family has selects that
/// family, among those that compute the same as `base`, unless the text names another. A family other than base's
/// starts with its own defaults. Throws Error invalid_argument for an unknown field (listing the known ones), a removed
/// one (naming its replacement), an illegal value, a field of another family, or a duplicate. config_rejection() says
/// whether the config is legal for a spec.
KernelConfig parse_config(std::string_view text, const KernelConfig& base = {});

/// The configs of the kernels that compute a call, in the order in which these run: one, or of gradients in two passes
/// that of dQ and that of dK and dV.
using PlanConfigs = std::vector<KernelConfig>;

/// The configs as to_string writes each, with " + " between them.
std::string to_string(const PlanConfigs& configs);

/// Reads what to_string writes of several. Throws as parse_config.
PlanConfigs parse_plan_configs(std::string_view text);

/// One field of a config as text, for reports.
struct ConfigValue {
  /// How the value is written.
  enum class Kind {
    number,  ///< a number
    truth,   ///< "true" or "false"
    word,    ///< one of some words
  };
  std::string_view name;     ///< of the field
  Kind kind = Kind::number;  ///< how the value is written
  int number = 0;            ///< of a truth 0 or 1
  std::string text;          ///< "128", "true", "ping_pong"
};
/// All fields of a config in order, without its family.
std::vector<ConfigValue> config_values(const KernelConfig& config);

/// The legal values of a field, for documents and help.
struct ConfigFieldDoc {
  std::string_view name;  ///< of the field
  std::string values;     ///< "1 to 4", "free, ping_pong", "a multiple of 16 from 16 to 256"
  std::string_view doc;   ///< one phrase with unit
};
/// A kernel family, for the same.
struct FamilyDoc {
  std::string_view name;               ///< also of its folder of templates
  std::string_view doc;                ///< one phrase: instructions and GPUs
  std::vector<ConfigFieldDoc> fields;  ///< in order
};
/// All kernel families, in the order of KernelConfig.
const std::vector<FamilyDoc>& family_docs();

}  // namespace jit
