// Operations beside attention: one program for a spec, which serves every size, so that nothing is tuned. A second one
// may serve calls of some sizes faster. What an operation writes itself is its spec, its programs, its checks and its
// launch; the way from program to loaded kernel is here, and that of attention.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <jit/context.h>
#include <jit/stream.h>

#include "cache/digest.h"
#include "cache/dispatch_table.h"
#include "generator/context/access.h"
#include "generator/launch/loaded_kernel.h"
#include "generator/problem/known_call.h"
#include "generator/program/program.h"

namespace jit {

/// The programs that are written for a spec.
struct OperationPrograms {
  OperationPrograms(Program for_all, std::optional<Program> faster = {})
      : every_size(std::move(for_all)), some_sizes(std::move(faster)) {}

  Program every_size;
  std::optional<Program> some_sizes;  ///< serves some sizes faster; which ones the operation knows
};

/// A program of a spec.
enum class OperationProgram { every_size, some_sizes };

/// The state that the handles of one spec share. Owned by its ContextState.
struct OperationState {
  OperationState(ContextState& owner, std::span<const std::uint64_t> words, OperationPrograms written)
      : context(owner), spec_words(words.begin(), words.end()), programs(std::move(written)) {}

  const Program& program(OperationProgram wanted) const {
    return wanted == OperationProgram::some_sizes ? *programs.some_sizes : programs.every_size;
  }

  ContextState& context;
  const std::vector<std::uint64_t> spec_words;
  const OperationPrograms programs;
  mutable DispatchTable<LoadedKernel> loaded;  ///< by program and device
  mutable std::mutex loading;  ///< held while a kernel is compiled or loaded, never by a launch
  mutable Shared<std::shared_ptr<void>> last_call;     ///< what the operation itself keeps of it
  mutable std::atomic<bool> lacks_some_sizes = false;  ///< their program could not be compiled here
};

/// The state of the spec with these words, or null. A look-up without locks.
const OperationState* find_operation(ContextState& context, std::span<const std::uint64_t> words);

/// Keeps a state for the programs of the spec with these words and loads the kernel of every size on the current device.
/// Throws Error unsupported_device, and what compiling and loading throw.
const OperationState* new_operation(ContextState& context, std::span<const std::uint64_t> words,
                                    OperationPrograms programs);

/// The handle of a spec, whose members are `words`: `write` makes the program, or OperationPrograms, when there is none.
template <class Handle, class Spec, std::size_t count, class Write>
Handle operation(const Context& context, const Spec& spec, const std::array<std::uint64_t, count>& words,
                 const Write& write) {
  ContextState& shared = *Access::state(context);
  const OperationState* state = find_operation(shared, words);
  if (state == nullptr) state = new_operation(shared, words, write());
  // The context owns the state, so a handle keeps the context alive.
  return Access::handle<Handle>(spec, std::shared_ptr<const OperationState>(Access::state(context), state));
}

/// The kernel on the current device, loaded if need be. Throws what compiling and loading throw.
const LoadedKernel& prepared_kernel(const OperationState& state,
                                    OperationProgram wanted = OperationProgram::every_size);

/// Throws Error unsupported_device where the current device is none of sm_90a, for which alone `operation` has a kernel.
void check_has_wgmma(std::string_view operation);

/// The kernel for a launch on `stream` of `device`, the current one: Error not_prepared when the stream is
/// being captured and no kernel is loaded. Where that of some sizes is wanted, that of every size stands in
/// for it under capture when it alone is loaded, and where it alone is at hand and nothing can be compiled.
const LoadedKernel& kernel_for_launch(const OperationState& state, int device, Stream stream,
                                      OperationProgram wanted = OperationProgram::every_size);

/// Puts a grid of the kernel's blocks on `stream`; `params` is its only parameter. It may start before the grid in front
/// of it has ended, where there is such a thing: the kernel waits. Throws Error launch_failed.
/// With `cooperative` all blocks run at the same time, behind the grid in front.
void launch_operation(const LoadedKernel& kernel, std::array<unsigned, 2> blocks, void* params, Stream stream,
                      bool cooperative = false);

}  // namespace jit
