// A compiled kernel as a value, and how it is built: program → key → memory | disk | pack | NVRTC.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <jit/arch.h>
#include <jit/device.h>
#include <jit/resource_usage.h>

#include "cache/entry.h"
#include "generator/program/program.h"

namespace jit {

struct KernelStore;

/// The form that a program is compiled to: machine code, which GPUs run, or PTX with line information, which
/// emulated devices run.
enum class CodeForm { cubin, ptx };

/// The architecture and form that a program is compiled for.
struct Target {
  Arch arch;
  CodeForm form = CodeForm::cubin;

  bool operator==(const Target&) const = default;
};

/// "sm_90a", or "sm_90a as PTX".
std::string to_string(const Target& target);

/// The target that `device` runs.
Target native_target(const DeviceInfo& device);

struct KernelImage {
  Program program;
  Target target;
  std::vector<std::byte> code = {};
  ResourceUsage resources = {};  ///< as ptxas reports; all zero for PTX
  double compile_ms = 0;         ///< wall time, even if another process compiled it
  bool cached = false;           ///< loaded from disk or from a pack
  std::string key = {};          ///< digest in hexadecimal
};

/// The image of `program` for `target`: from memory, disk or a pack, else compiled and stored. Each key is
/// compiled once at a time, within and across processes. Thread safe. Throws Error compile_failed,
/// nvrtc_unavailable, offline; io_error if an included template does not exist.
std::shared_ptr<const KernelImage> build_image(KernelStore& store, const Program& program, Target target);

/// The image if it needs no compile: from memory, disk or a pack; else null. Thread safe.
std::shared_ptr<const KernelImage> image_at_hand(KernelStore& store, const Program& program, Target target);

/// Compiles the image's program again and replaces cached copies, for an image from disk that the driver
/// rejects.
std::shared_ptr<const KernelImage> rebuild_image(KernelStore& store, const KernelImage& image);

/// The cache entry of an image.
Entry entry_of(KernelStore& store, const KernelImage& image);

/// Readable PTX of the program, without line information, newly compiled.
std::string build_ptx(KernelStore& store, const KernelImage& image);

}  // namespace jit
