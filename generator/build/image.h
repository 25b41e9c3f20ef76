// A compiled kernel as a value, and how one is made: program → key → memory | disk | pack | NVRTC.
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
  ResourceUsage resources = {};  ///< as the assembler tells; all zero for PTX, which it has not seen
  double compile_ms = 0;         ///< wall time, also when another process compiled it
  bool cached = false;           ///< came from disk or from a pack
  std::string key = {};          ///< digest, hexadecimal
};

/// The image of `program` for `target`: from memory, else from disk, else from a pack, else compiled and stored; one compile at
/// a time for each key, in this process and among processes. Thread safe. Throws Error compile_failed,
/// nvrtc_unavailable, offline; io_error when the program includes a template that is not there.
std::shared_ptr<const KernelImage> build_image(KernelStore& store, const Program& program, Target target);

/// The image where nothing has to be compiled; null where the kernel is neither in memory, on disk nor in a
/// pack. Thread safe.
std::shared_ptr<const KernelImage> image_at_hand(KernelStore& store, const Program& program, Target target);

/// Compiles the image's program again, whatever the caches hold, and replaces what they hold: for an image
/// from disk that the driver refuses.
std::shared_ptr<const KernelImage> rebuild_image(KernelStore& store, const KernelImage& image);

/// The cache entry of an image.
Entry entry_of(KernelStore& store, const KernelImage& image);

/// PTX to read, without line information, compiled anew: what the machine code of the program is made from.
std::string build_ptx(KernelStore& store, const KernelImage& image);

}  // namespace jit
