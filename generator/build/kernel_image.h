// A compiled kernel as a value, and how one is made: program → key → memory | disk | NVRTC.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <jit/arch.h>
#include <jit/kernel_config.h>
#include <jit/resource_usage.h>
#include <jit/spec.h>

#include "generator/program/emit.h"

namespace jit {

struct ContextState;

struct KernelImage {
  Program program;
  AttentionSpec spec;
  KernelConfig config;
  Arch arch;
  std::vector<std::byte> cubin;
  ResourceUsage resources;
  double compile_ms = 0;
  bool cached = false;  ///< came from disk
  std::string key;      ///< digest, hexadecimal
};

/// The image of `program` for `arch`: from memory, else from disk, else compiled and stored; one compile at a
/// time for each key, in this process and among processes. Thread safe. Throws Error compile_failed,
/// nvrtc_unavailable, offline.
std::shared_ptr<const KernelImage> build_image(ContextState& context, const Program& program,
                                               const AttentionSpec& spec, const KernelConfig& config,
                                               Arch arch);

/// Compiles the image's program again, whatever the caches hold, and replaces what they hold: for an image
/// from disk that the driver refuses.
std::shared_ptr<const KernelImage> rebuild_image(ContextState& context, const KernelImage& image);

/// The first of `configs` whose kernel is clean (ResourceUsage::is_clean). When none of the first few is, the
/// best of them, with a warning event.
std::shared_ptr<const KernelImage> build_clean(ContextState& context, const AttentionSpec& spec,
                                               const std::vector<KernelConfig>& configs, Arch arch);

/// PTX of the image's program, compiled anew.
std::string build_ptx(ContextState& context, const KernelImage& image);

/// PTX of the image's program with line information, which an emulated device runs in place of the cubin:
/// from memory, else compiled. Thread safe. Throws Error compile_failed, nvrtc_unavailable, offline.
std::shared_ptr<const std::string> build_emulated_code(ContextState& context, const KernelImage& image);

}  // namespace jit
