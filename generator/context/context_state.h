// The state of a Context. All mutable state of the library is here, in AttentionState and in OperationState.
#pragma once

#include <atomic>
#include <memory>

#include <jit/context.h>

#include "cache/dispatch_table.h"
#include "cache/recent.h"
#include "cache/tuning_store.h"
#include "generator/build/kernel_store.h"
#include "generator/launch/stream_memory.h"

namespace jit {

struct AttentionState;
struct OperationState;

/// A store of kernels, with tuning records, memory for launches, and the states that handles share.
struct ContextState : KernelStore, std::enable_shared_from_this<ContextState> {
  ContextState(Settings settings, Observer observer);
  ~ContextState();

  TuningStore tuning;
  const StreamMemory memory;
  DispatchTable<AttentionState> attentions;
  DispatchTable<OperationState> operations;
  Recent<AttentionState> recent_attentions;  ///< for attention_when_called
  Recent<OperationState> recent_operations;
};

}  // namespace jit
