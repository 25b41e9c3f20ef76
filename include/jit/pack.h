// Packs: all kernels that some problems need, in one file, so that processes that have it never compile.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jit/append.h>
#include <jit/arch.h>
#include <jit/context.h>
#include <jit/error.h>
#include <jit/spec.h>

namespace jit {

/// The devices that a pack is for.
struct PackTarget {
  Arch arch;                         ///< the richest that they run: sm_90a
  bool emulated = false;             ///< emulated devices run PTX, GPUs machine code
  std::vector<int> multiprocessors;  ///< how many they have: choices of kernels depend on it
};

/// "sm_90a" or "emulated:sm_90a", with the multiprocessors of the GPUs that are known of the architecture. "sm_90"
/// is the same as "sm_90a", because that is what its devices ask for. Throws Error invalid_argument.
PackTarget parse_pack_target(std::string_view text);

/// The calls that a pack is for: those of one token up to `max_seqlen`, in batches up to `max_batch`. Each is at most
/// 2^24.
struct PackSizes {
  int heads_q = 32;                  ///< query heads; fewer are served, too
  int max_batch = 64;                ///< batch entries
  std::int64_t max_seqlen = 131072;  ///< tokens
  /// Whether gradients are computed, too: deterministic ones or not, those of sinks, and of all that a score reads
  /// together.
  bool training = false;
  /// Whether caches are filled and states are merged, too: by append() of tokens as they come, and as `append` says, by
  /// tables of fp32 or of the spec's type, and by merge() of up to two views.
  bool serving = false;
  /// With serving, how keys and queries are rotated and normalized on their way to the cache; rotary_dim 0: wholly. Types,
  /// head dims, scales and alignment are those of specs.
  AppendSpec append = {};
};

/// A kernel in a pack.
struct PackedKernel {
  std::string spec;         ///< "bf16 d128 gqa4 causal"
  std::string config;       ///< "family=forward_wgmma …"
  std::string target;       ///< "sm_90a", "sm_90a as PTX"
  std::string name;         ///< as profilers show it
  std::string key;          ///< 32 hexadecimal digits: CompiledKernel::key()
  std::uint64_t bytes = 0;  ///< in the file
  double compile_ms = 0;    ///< wall time of the compile that made it, also when that was another process's
  bool cached = false;      ///< it was in the context's cache
  /// How many of the sizes that were looked at it serves, and among which they lie; none: it is only looked at
  /// on the way to another, because it spills or waits between its multiplications.
  int sizes = 0;
  bool all_sizes = false;                      ///< it runs beside others, whatever the sizes are
  std::int64_t least_rows = 0, most_rows = 0;  ///< batch · heads
  std::int64_t least_seqlen_q = 0, most_seqlen_q = 0;
  std::int64_t least_seqlen_kv = 0, most_seqlen_kv = 0;
};

/// What write_pack() made.
struct PackContents {
  std::vector<PackedKernel> kernels;  ///< by spec and target, those that serve most sizes first
  std::uint64_t bytes = 0;            ///< of the file
};

/// Compiles what untuned calls of these specs and sizes run on these devices, mixed ones among them, on all cores, and
/// writes it to one file: for processes whose Settings::packs name it, with this version of the library and this NVRTC,
/// and tensors that TMA can map. Of a spec of fp8 also the quantizers of its q, k and v, out of tensors of the type of o.
/// A spec that some of the devices cannot run is left out for these, with a note. Needs no GPU. Kernels are taken from the context's cache, and kept there. Progress comes as events of kind tune.
/// Nothing is written when anything fails. Throws Error invalid_spec, invalid_argument, unsupported_device,
/// no_valid_config, what compiling throws, and io_error.
PackContents write_pack(const std::string& path, std::span<const AttentionSpec> specs,
                        std::span<const PackTarget> targets, const PackSizes& sizes = {},
                        const Context& context = default_context());

}  // namespace jit
