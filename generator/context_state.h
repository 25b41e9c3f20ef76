// What a Context holds. The only mutable state of the library lives here, in AttentionState and in
// OperationState.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/spec.h>

#include "cache/cache_directory.h"
#include "cache/disk_cache.h"
#include "cache/dispatch_table.h"
#include "cache/memory_cache.h"
#include "cache/recent.h"
#include "cache/tuning_store.h"
#include "generator/build/image.h"
#include "generator/launch/stream_memory.h"
#include "generator/pack/packs.h"
#include "generator/program/closure.h"
#include "runtime/nvrtc_library.h"

namespace jit {

struct AttentionState;
struct OperationState;

struct ContextState : std::enable_shared_from_this<ContextState> {
  ContextState(Settings settings, Observer observer);
  ~ContextState();

  /// libnvrtc, found at the first need; finding it does not open it. Throws Error nvrtc_unavailable at each
  /// call until found.
  NvrtcLocation nvrtc_location();

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

  /// Tells once that devices are emulated although nobody asked for it.
  void tell_of_fallback();

  /// What many compiles may repeat, such as that a user's text has an unused variable.
  void tell_once(Event::Kind kind, const std::string& message);

  void notify(Event::Kind kind, std::string message, double seconds = 0, int done = 0, int total = 0) const;

  const Settings settings;
  const Observer observer;
  const Templates templates;
  const ClosureDigests closures{templates};
  const CacheDirectory directory;
  DiskCache disk;
  const Packs packs;
  TuningStore tuning;
  SingleFlight<KernelImage> images;
  const StreamMemory memory;
  DispatchTable<AttentionState> attentions;
  DispatchTable<OperationState> operations;
  Recent<AttentionState> recent_attentions;  ///< those of attention_when_called
  Recent<OperationState> recent_operations;

 private:
  bool pass_over_unopened(const std::string& why);
  std::string find_opened();  // the path of a libnvrtc that opens; empty: there is none

  std::atomic_flag told_of_fallback_;
  std::mutex told_mutex_;
  std::set<std::string> told_;
  std::mutex nvrtc_mutex_;
  std::optional<NvrtcLocation> nvrtc_;
  std::vector<std::string> unopened_;  // paths
};

}  // namespace jit
