/// @file
/// A compiled kernel that can be read: source, PTX, SASS, resources, and how its config was chosen.
///
/// @code
/// const jit::AttentionSpec spec{.head_dim = 64};
/// const jit::CompiledKernel kernel = jit::compile(spec, jit::parse_arch("sm_80"));  // needs no GPU
/// assert(kernel.spec() == spec && jit::to_string(kernel.arch()) == "sm_80");
/// assert(jit::family_name(kernel.config()) == "forward_mma_sync");
/// std::printf("%s: %s, compiled in %.0f ms%s\n", kernel.name().c_str(), kernel.why().c_str(), kernel.compile_ms(),
///             kernel.cached() ? " by another process" : "");
/// assert(kernel.threads() == 128 && kernel.smem_bytes() > 0 && kernel.resources().spill_bytes() == 0);
/// assert(kernel.source().find("Config") != std::string::npos && kernel.ptx().find(".entry") != std::string::npos);
/// assert(!kernel.cubin().empty() && kernel.key().size() == 32 && kernel.tuning_log().empty());
/// assert(kernel.report().starts_with("{"));
/// const jit::CompiledKernel::Sass sass = kernel.sass();
/// assert(sass.text.empty() != sass.missing.empty());  // a disassembler was found, or a sentence says what to install
/// for (const std::string& path : kernel.dump(folder)) std::puts(path.c_str());
/// @endcode
///
/// @code
/// const jit::AttentionSpec spec{.head_dim = 64};
/// const jit::Arch arch = jit::parse_arch("sm_90a");
/// const std::vector<jit::KernelConfig> configs = jit::candidate_configs(spec, arch);
/// assert(jit::config_rejection(spec, configs.front(), arch).empty());
/// jit::ForwardMmaSync wrong;
/// wrong.tile_q = 100;
/// std::puts(jit::config_rejection(spec, wrong, arch).c_str());  // the rule that it violates
/// for (const jit::LadderStep& step : jit::ladder()) std::puts(step.technique.c_str());
/// @endcode
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <jit/arch.h>
#include <jit/context.h>
#include <jit/device.h>
#include <jit/error.h>
#include <jit/kernel_config.h>
#include <jit/resource_usage.h>
#include <jit/spec.h>

namespace jit {

struct KernelImage;

/// A compiled kernel with its source, its machine code, and how it was chosen. Immutable, cheap to copy, thread safe.
/// It needs no GPU.
class CompiledKernel {
 public:
  /// The spec that was asked for; specs that differ in run-time facts only share a kernel.
  const AttentionSpec& spec() const { return spec_; }
  /// The kernel family, and the fields that tuning chooses.
  const KernelConfig& config() const { return config_; }
  /// The architecture that it was compiled for.
  Arch arch() const;
  /// Name of the kernel, as profilers show it.
  const std::string& name() const;
  /// The generated program; it includes templates, which `dump` writes beside it.
  const std::string& source() const;
  /// The machine code. For an emulated device, which runs PTX, the first call compiles it or loads it from the cache,
  /// and throws what compiling throws. Valid as long as the kernel or a copy exists.
  std::span<const std::byte> cubin() const;
  /// Registers, spills and shared memory, as the assembler reports them. Throws as cubin() does.
  const ResourceUsage& resources() const;
  int smem_bytes() const;  ///< dynamic shared memory of a block
  int threads() const;     ///< of a block
  /// Key of its cache entry, 32 hexadecimal digits.
  const std::string& key() const;
  /// Whether it came from the disk cache.
  bool cached() const;
  /// Wall time of the compile that made it, also when that was another process's.
  double compile_ms() const;
  /// Why this config: "cost model …", "recorded …", "tuned …", "given".
  const std::string& why() const { return why_; }
  /// The tuner's measurements, one line per candidate; empty when it did not run in this process.
  const std::vector<std::string>& tuning_log() const { return tuning_log_; }

  /// PTX to read, compiled anew: caches keep what devices run. Throws what compiling throws.
  std::string ptx() const;
  /// The result of sass().
  struct Sass {
    std::string text;     ///< the SASS; empty if no disassembler was found
    std::string missing;  ///< a sentence about the missing disassembler; empty if there is one
  };
  /// The SASS, by nvdisasm or cuobjdump. Throws as cubin() does.
  Sass sass() const;

  /// All of the above but the code itself, as a JSON object.
  std::string report() const;

  /// Writes kernel.cu, kernel.ptx, kernel.cubin, report.json, templates/ (all that kernel.cu includes) and, when a
  /// disassembler is found, kernel.sass to a folder, which is created; each an OutputFile. Where the bytes of one
  /// find no room, no file is made or replaced; devices and pipes are written last. Returns the paths. `kernel.cu`
  /// compiles with `nvcc -std=c++20 -I FOLDER/templates`. Throws Error io_error, invalid_argument when `folder` is
  /// empty, and what compiling throws.
  std::vector<std::string> dump(const std::string& folder) const;

 private:
  friend struct Access;
  CompiledKernel(std::shared_ptr<ContextState> context, AttentionSpec spec, KernelConfig config,
                 std::shared_ptr<const KernelImage> image, std::string why,
                 std::vector<std::string> tuning_log);
  const KernelImage& machine_image() const;

  std::shared_ptr<ContextState> context_;  // to compile on demand
  AttentionSpec spec_;
  KernelConfig config_;
  std::shared_ptr<const KernelImage> image_;
  std::string why_;
  std::vector<std::string> tuning_log_;
};

/// Writes and compiles the kernel for `spec` on `arch`, or takes it from the cache: no GPU and no driver
/// needed. Without `config` the cost model chooses for typical sizes, passing over configs that spill. Throws
/// Error invalid_spec, no_valid_config, compile_failed, nvrtc_unavailable, offline.
CompiledKernel compile(const AttentionSpec& spec, Arch arch, std::optional<KernelConfig> config = {},
                       const Context& context = default_context());

/// The legal configs for `spec` on `arch`, most promising first. Pure. Throws Error invalid_spec,
/// no_valid_config.
std::vector<KernelConfig> candidate_configs(const AttentionSpec& spec, Arch arch);

/// Why `config` is not legal for `spec` on `arch`, in one sentence; empty: it is. Pure, thread safe.
std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config, Arch arch);
/// Why `config` is not legal for `spec` on a device, whose shared memory may differ from what its
/// architecture has.
std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config, const DeviceInfo& device);

/// A named config of the published ladder for kernels like forward_mma_sync ("Writing Speed-of-Light Flash Attention
/// for 5090 in CUDA C++"), from swizzled tiles on, and a step beyond it: each adds one technique to the one before.
struct LadderStep {
  std::string name;       ///< "v2_pipeline"
  std::string technique;  ///< "two stages of K and V"
  KernelConfig config;    ///< the step's config
};
/// All steps, the first one first.
const std::vector<LadderStep>& ladder();

}  // namespace jit
