// Operations beside attention: one program for a spec, which serves every size, so that nothing is chosen or tuned. What
// an operation writes itself is its spec, its program, its checks and its launch; the way from program to loaded kernel
// is here, and that of attention.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include <jit/context.h>
#include <jit/stream.h>

#include "cache/digest.h"
#include "cache/dispatch_table.h"
#include "generator/access.h"
#include "generator/launch/loaded_kernel.h"
#include "generator/program/program.h"

namespace jit {

/// What the handles of one spec share. Owned by its ContextState.
struct OperationState {
  OperationState(ContextState& owner, Program written) : context(owner), program(std::move(written)) {}

  ContextState& context;
  const Program program;
  mutable DispatchTable<LoadedKernel> loaded;  ///< by device
  mutable std::mutex loading;  ///< held while the kernel is compiled or loaded, never by a launch
};

/// The state that was kept under `key`, or null. A look-up without locks.
const OperationState* find_operation(const ContextState& context, const Digest& key);

/// Keeps a state for the program under `key` and loads its kernel on the current device. Throws Error
/// unsupported_device, and what compiling and loading throw.
const OperationState* new_operation(ContextState& context, const Digest& key, Program program);

/// The handle of a spec, whose members are `words`: `write` makes the program when there is none.
template <class Handle, class Spec, std::size_t count, class Write>
Handle operation(const Context& context, const Spec& spec, const std::array<std::uint64_t, count>& words,
                 const Write& write) {
  ContextState& shared = *Access::state(context);
  const Digest key = digest(std::as_bytes(std::span(words)));
  const OperationState* state = find_operation(shared, key);
  if (state == nullptr) state = new_operation(shared, key, write());
  // The context owns the state, so a handle keeps the context alive.
  return Access::handle<Handle>(spec, std::shared_ptr<const OperationState>(Access::state(context), state));
}

/// The kernel on the current device, loaded if need be. Throws what compiling and loading throw.
const LoadedKernel& prepared_kernel(const OperationState& state);

/// The same for a launch on `stream` of `device`, the current one: Error not_prepared when the stream is being captured
/// and the kernel is not loaded.
const LoadedKernel& kernel_for_launch(const OperationState& state, int device, Stream stream);

/// Puts a grid of the kernel's blocks on `stream`; `params` is its only parameter. It may start before the grid in front
/// of it has ended, where there is such a thing: the kernel waits. Throws Error launch_failed.
void launch_operation(const LoadedKernel& kernel, std::array<unsigned, 2> blocks, void* params,
                      Stream stream);

}  // namespace jit
