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

  /// libnvrtc, found at the first need; finding it does not open it. Throws Error nvrtc_unavailable at each
  /// call until found.
  NvrtcLocation nvrtc_location();

  /// The first libnvrtc that opens. Throws Error nvrtc_unavailable.
  NvrtcLocation opened_nvrtc();

  /// Calls `compile`, which asks for the compiler that it uses and is named by, again where that cannot be opened and
  /// another can be found.
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

  /// The compiler that keys name: the NVRTC that is found; where there is none, the one that a pack was made with,
  /// so that packs serve machines without NVRTC. Throws Error nvrtc_unavailable.
  std::string compiler_identity();

  /// Reports once what many compiles may repeat, such as that a user's text has an unused variable.
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
  std::string find_opened();  // the path of a libnvrtc that opens; empty: there is none

  std::mutex told_mutex_;
  std::set<std::string> told_;
  std::mutex nvrtc_mutex_;
  std::optional<NvrtcLocation> nvrtc_;
  std::vector<UnopenedNvrtc> unopened_;
};

}  // namespace jit
