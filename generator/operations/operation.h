// Operations other than attention: one program per spec serves every size, so there is no tuning; others
// may be faster for some sizes. An operation consists of its spec, programs, checks and launch; this file
// loads kernels, with the build path of attention.
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

/// The programs of a spec.
struct OperationPrograms {
  OperationPrograms(Program for_all, std::optional<Program> faster = {}, std::optional<Program> other = {})
      : every_size(std::move(for_all)), some_sizes(std::move(faster)), other_sizes(std::move(other)) {}

  Program every_size;
  std::optional<Program> some_sizes;   ///< faster for some sizes, which the operation selects
  std::optional<Program> other_sizes;  ///< faster for other ones
};

/// Selects a program of a spec.
enum class OperationProgram { every_size, some_sizes, other_sizes };

/// The state that a spec's handles share. Owned by its ContextState.
struct OperationState {
  OperationState(ContextState& owner, std::span<const std::uint64_t> words, OperationPrograms written)
      : context(owner), spec_words(words.begin(), words.end()), programs(std::move(written)) {}

  const Program& program(OperationProgram wanted) const {
    if (wanted == OperationProgram::every_size) return programs.every_size;
    return wanted == OperationProgram::some_sizes ? *programs.some_sizes : *programs.other_sizes;
  }

  ContextState& context;
  const std::vector<std::uint64_t> spec_words;
  const OperationPrograms programs;
  mutable DispatchTable<LoadedKernel> loaded;  ///< by program and device
  mutable std::mutex loading;  ///< held while a kernel is compiled or loaded, never by a launch
  mutable Shared<std::shared_ptr<void>> last_call;  ///< the operation's own data about its last call
  /// By OperationProgram: it could not be compiled here.
  mutable std::array<std::atomic<bool>, 3> lacks = {};
};

/// The state of the spec encoded by `words`, or null. Lock-free.
const OperationState* find_operation(ContextState& context, std::span<const std::uint64_t> words);

/// Adds a state for the spec encoded by `words`, and loads its kernel for every size on the current device.
/// Throws Error unsupported_device, and errors of compiling and loading.
const OperationState* new_operation(ContextState& context, std::span<const std::uint64_t> words,
                                    OperationPrograms programs);

/// The handle of the spec encoded by `words`; write() returns its program or OperationPrograms if it is new.
template <class Handle, class Spec, std::size_t count, class Write>
Handle operation(const Context& context, const Spec& spec, const std::array<std::uint64_t, count>& words,
                 const Write& write) {
  ContextState& shared = *Access::state(context);
  const OperationState* state = find_operation(shared, words);
  if (state == nullptr) state = new_operation(shared, words, write());
  // The state is owned by the context, which the handle keeps alive.
  return Access::handle<Handle>(spec, std::shared_ptr<const OperationState>(Access::state(context), state));
}

/// The kernel on the current device, loaded if necessary. Throws errors of compiling and loading.
const LoadedKernel& prepared_kernel(const OperationState& state,
                                    OperationProgram wanted = OperationProgram::every_size);

/// As above, of a program that is faster for some sizes: null where it cannot be compiled here.
const LoadedKernel* faster_kernel(const OperationState& state, OperationProgram wanted);

/// Throws Error unsupported_device unless the current device is sm_90a; `operation` has no kernel for others.
void check_has_wgmma(std::string_view operation);

/// The kernel for a launch on `stream` of `device`, which must be current. Throws Error not_prepared if the
/// stream is being captured and no kernel is loaded. The every-size kernel replaces others during
/// capture if only it is loaded, and whenever only it is available.
const LoadedKernel& kernel_for_launch(const OperationState& state, int device, Stream stream,
                                      OperationProgram wanted = OperationProgram::every_size);

/// Launches a grid of the kernel; `params` is its only parameter. From sm_90 on it may start before the
/// previous grid has ended, so the kernel waits; with `cooperative` it starts afterwards, and all blocks are
/// co-resident. Throws Error launch_failed.
void launch_operation(const LoadedKernel& kernel, std::array<unsigned, 2> blocks, void* params, Stream stream,
                      bool cooperative = false);

}  // namespace jit
