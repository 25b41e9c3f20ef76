// The part of a context that builders of kernels see: compiler, caches, packs, templates and the observer.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <jit/error.h>
#include <jit/observer.h>
#include <jit/settings.h>

#include "cache/cache_directory.h"
#include "cache/disk_cache.h"
#include "cache/memory_cache.h"
#include "generator/build/image.h"
#include "generator/build/packs.h"
#include "generator/program/closure.h"
#include "runtime/nvrtc_library.h"

namespace jit {

/// Templates, the compiler, and images in memory, on disk and in packs. Thread safe.
struct KernelStore {
  KernelStore(Settings settings, Observer observer);

  /// Location of libnvrtc, searched at first use but not opened. Throws Error nvrtc_unavailable at each call
  /// until it is found.
  NvrtcLocation nvrtc_location();

  /// The first libnvrtc that opens. Throws Error nvrtc_unavailable.
  NvrtcLocation opened_nvrtc();

  /// Calls `compile`, and again with another libnvrtc if the current one cannot be opened. `compile` must ask
  /// for the compiler at each call, since keys contain it.
  template <class Compile>
  auto with_compiler(const Compile& compile) {
    while (true) {
      try {
        return compile();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::nvrtc_unavailable || !pass_over_unopened(error.message())) throw;
      }
    }
  }

  /// The compiler for keys: the NVRTC that is found, else the one that made a pack, so that packs work
  /// without NVRTC. Throws Error nvrtc_unavailable.
  std::string compiler_identity();

  /// The compilers whose kernels are taken from packs: the packs' own, if compiling is forbidden or there is no
  /// NVRTC, whatever is installed, such as PyTorch's; else the NVRTC that is found. Throws Error
  /// nvrtc_unavailable.
  std::vector<std::string> compilers_of_packs();

  /// Reports a message once even if many compiles repeat it, such as one about an unused variable.
  void tell_once(Event::Kind kind, const std::string& message);

  void notify(Event::Kind kind, std::string message, double seconds = 0, int done = 0, int total = 0) const;

  const Settings settings;
  const Observer observer;
  const Templates templates;
  const ClosureDigests closures{templates};
  const CacheDirectory directory;
  DiskCache disk;
  const Packs packs;
  SingleFlight<KernelImage> images;

 private:
  bool pass_over_unopened(const std::string& why);
  std::string find_opened();  // path of a libnvrtc that opens; empty if none does

  std::mutex told_mutex_;
  std::set<std::string> told_;
  std::mutex nvrtc_mutex_;
  std::optional<NvrtcLocation> nvrtc_;
  std::vector<UnopenedNvrtc> unopened_;
};

}  // namespace jit
