#include <jit/transpose_lists.h>

#include <array>
#include <cstdint>

#include <jit/device.h>

#include "generator/context/context_state.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/stream_memory.h"
#include "generator/operations/operation.h"
#include "generator/operations/transpose_lists/arguments.h"
#include "generator/operations/transpose_lists/launch.h"
#include "generator/operations/transpose_lists/program.h"
#include "runtime/capture.h"

namespace jit {

namespace {

constexpr std::array<std::uint64_t, 1> words = {21};  // unique to this operation

}  // namespace

const OperationState& transposing_state(ContextState& context) {
  const OperationState* known = find_operation(context, words);
  return *(known != nullptr ? known : new_operation(context, words, transpose_lists_program()));
}

const LoadedKernel& transposing_kernel(ContextState& context, int device, Stream stream) {
  const OperationState* known = find_operation(context, words);
  if (known == nullptr && is_capturing(stream))
    throw Error(ErrorCode::not_prepared, "launch", "stream",
                "the stream is being captured and transpose_lists is not loaded: call prepare() before the "
                "capture begins");
  return kernel_for_launch(transposing_state(context), device, stream);
}

void launch_transpose(const LoadedKernel& kernel, TransposeListsParams params, Stream stream) {
  if (params.heads == 0) return;
  const auto put = [&](TransposeStep step, std::int64_t blocks) {
    params.step = step;
    if (blocks > 0)
      launch_operation(kernel, {static_cast<unsigned>(blocks), static_cast<unsigned>(params.heads)}, &params,
                       stream);
  };
  const std::int64_t entries =
      (std::int64_t{params.rows} * params.entries + transpose_threads - 1) / transpose_threads;
  put(TransposeStep::clear, params.limit / transpose_threads + 1);
  put(TransposeStep::count, entries);
  put(TransposeStep::scan, 1);
  put(TransposeStep::fill, entries);
  put(TransposeStep::order, ceil_div(params.limit, transpose_block_entries));
}

void check_arguments(const TransposeListsArguments& arguments) {
  TransposeListsParams unused;
  fill_params(arguments, unused);
}

void TransposeLists::operator()(const TransposeListsArguments& arguments, Stream stream) const {
  TransposeListsParams params;
  const std::size_t scratch_bytes = fill_params(arguments, params);
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  StreamLease lease(state_->context.memory, kernel.device, stream);
  if (scratch_bytes > 0) place_scratch(params, lease.workspace(scratch_bytes));
  launch_transpose(kernel, params, stream);
}

void TransposeLists::prepare() const { prepared_kernel(*state_); }

const std::string& TransposeLists::source() const { return state_->programs.every_size.source; }

TransposeLists transpose_lists(const Context& context) {
  return operation<TransposeLists>(context, TransposeLists::NoSpec(), words,
                                   [] { return transpose_lists_program(); });
}

}  // namespace jit
