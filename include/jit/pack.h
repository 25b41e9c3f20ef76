/// @file
/// Packs: files with all kernels that some problems need, so that processes that use them never compile.
///
/// @code
/// const jit::AttentionSpec specs[] = {{.head_dim = 64, .mask = jit::mask::causal()}};
/// const jit::PackTarget targets[] = {jit::parse_pack_target("sm_80")};  // no GPU is needed
/// const jit::PackContents pack = jit::write_pack(folder + "/kernels.pack", specs, targets,
///                                                {.heads_q = 4, .max_batch = 2, .max_seqlen = 64});
/// for (const jit::PackedKernel& kernel : pack.kernels) std::puts(kernel.name.c_str());
/// jit::Settings settings = jit::settings_from_environment();
/// settings.packs = {folder + "/kernels.pack"};
/// const jit::Context context(settings);  // compiles none of these kernels
/// assert(context.packs().front().refusal.empty());
/// @endcode
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
  Arch arch;                         ///< the most capable architecture that they run: sm_90a
  bool emulated = false;             ///< emulated devices run PTX, GPUs machine code
  std::vector<int> multiprocessors;  ///< their numbers of SMs, on which kernel choices depend
};

/// "sm_90a" or "emulated:sm_90a", with the multiprocessors of the GPUs that are known of the architecture. "sm_90"
/// is the same as "sm_90a", because that is what its devices ask for. Throws Error invalid_argument.
PackTarget parse_pack_target(std::string_view text);

/// The calls that a pack serves: of one token up to `max_seqlen`, in batches up to `max_batch`. Each number is at
/// most 2^24.
struct PackSizes {
  int heads_q = 32;                  ///< query heads; fewer are served, too
  int max_batch = 64;                ///< batch entries
  std::int64_t max_seqlen = 131072;  ///< tokens
  /// Whether gradients are packed, too: deterministic or not, of sinks, and of the tensors of a score.
  bool training = false;
  /// Whether append() and merge() are packed, too: append() without rotation, and as `append` says, with tables of
  /// fp32 or the spec's type; merge() of up to two views.
  bool serving = false;
  /// With serving: how append() rotates and normalizes; rotary_dim 0: whole heads. Types, head dims, scales and
  /// alignment are those of the specs.
  AppendSpec append = {};
};

/// A kernel in a pack.
struct PackedKernel {
  std::string spec;         ///< "bf16 d128 gqa4 mask=causal"
  std::string config;       ///< "family=forward_wgmma …"
  std::string target;       ///< "sm_90a", "sm_90a as PTX"
  std::string name;         ///< as profilers show it
  std::string key;          ///< 32 hexadecimal digits: CompiledKernel::key()
  std::uint64_t bytes = 0;  ///< in the file
  double compile_ms = 0;    ///< wall time of the compile that made it, also when that was another process's
  bool cached = false;      ///< it was in the context's cache
  /// Number of the examined call sizes that it serves. 0: selection compiles it only to reject it, because it spills
  /// or serializes its multiplications.
  int sizes = 0;
  bool all_sizes = false;            ///< whether calls of every size launch it, beside other kernels
  std::int64_t least_rows = 0;       ///< the smallest batch · heads that it serves
  std::int64_t most_rows = 0;        ///< the largest one
  std::int64_t least_seqlen_q = 0;   ///< the smallest number of queries that it serves
  std::int64_t most_seqlen_q = 0;    ///< the largest one
  std::int64_t least_seqlen_kv = 0;  ///< the smallest number of keys that it serves
  std::int64_t most_seqlen_kv = 0;   ///< the largest one
};

/// The result of write_pack().
struct PackContents {
  std::vector<PackedKernel> kernels;  ///< by spec and target, those that serve most sizes first
  std::uint64_t bytes = 0;            ///< of the file
};

/// Compiles the kernels that untuned calls of these specs and sizes launch on these devices, mixed calls included, and
/// writes them to one file, for processes whose Settings::packs name it, with this version of the library and this
/// NVRTC, and tensors that TMA can map. For FP8 specs it includes the quantizers of q, k and v, from o's type. A spec
/// that a target cannot run is left out there, with a note event. Needs no GPU. Kernels are taken from the context's
/// cache and stored there. `jobs` kernels compile at once; 0: one per core. Progress comes as events of kind tune,
/// which count choices of kernels. After an error nothing is written. Throws Error invalid_spec, invalid_argument,
/// unsupported_device, no_valid_config, io_error, and what compiling throws.
PackContents write_pack(const std::string& path, std::span<const AttentionSpec> specs,
                        std::span<const PackTarget> targets, const PackSizes& sizes = {},
                        const Context& context = default_context(), int jobs = 0);

}  // namespace jit
