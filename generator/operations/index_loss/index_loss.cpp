#include <jit/index_loss.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <jit/device.h>

#include "generator/context/context_state.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/stream_memory.h"
#include "generator/operations/index_loss/arguments.h"
#include "generator/operations/index_loss/program.h"
#include "generator/operations/operation.h"
#include "generator/operations/transpose_lists/launch.h"
#include "runtime/launch.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 4> words_of(const IndexLossSpec& spec) {
  const auto& [dtype, heads, head_dim, part_bytes] = spec;
  constexpr std::uint64_t index_loss = 24;  // unique to this operation
  return {index_loss, static_cast<std::uint64_t>(dtype),
          static_cast<std::uint64_t>(heads) << 32 | static_cast<std::uint64_t>(head_dim),
          static_cast<std::uint64_t>(part_bytes)};
}

void put(const LoadedKernel& kernel, IndexLossParams& params, IndexLossStep step, std::int64_t blocks,
         Stream stream) {
  if (blocks == 0) return;
  params.step = step;
  void* parameters[] = {&params};
  launch(kernel.kernel.handle(),
         {.grid = {static_cast<unsigned>(blocks), 1, 1},
          .block = {kernel.threads, 1, 1},
          // Sums use none of it, which raises occupancy.
          .smem_bytes = step == IndexLossStep::keys ? 0 : kernel.smem_bytes,
          .dependent = kernel.image->target.arch.major >= 9},
         parameters, stream);
}

}  // namespace

void check_arguments(const IndexLossSpec& spec, const IndexLossArguments& arguments) {
  IndexLossParams unused;
  fill_params(spec, arguments, unused);
}

void IndexLoss::operator()(const IndexLossArguments& arguments, Stream stream) const {
  IndexLossParams params;
  const IndexLossWork work = fill_params(spec_, arguments, params);
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  const LoadedKernel& transposing = transposing_kernel(state_->context, device.ordinal(), stream);
  StreamLease lease(state_->context.memory, kernel.device, stream);
  TransposeListsParams lists{};
  place_memory(spec_, work, static_cast<std::byte*>(lease.workspace(work.bytes)), params, lists);
  const std::int64_t pieces = std::int64_t{params.keys} * (spec_.head_dim / 4);
  const std::int64_t sum_blocks = (pieces + index_loss_threads - 1) / index_loss_threads;
  std::int64_t first = 0;
  do {  // also once without tokens, to clear gradients
    const std::int64_t count = std::min(work.tokens - first, work.at_once);
    params.first_list = static_cast<int>(first);
    if (work.has_loss) put(kernel, params, IndexLossStep::loss, count, stream);
    params.is_first = first == 0;
    params.is_last = first + count == work.tokens;
    if (work.has_gradients) {
      put(kernel, params, IndexLossStep::lists, count, stream);
      lists.indices = params.lists + first * params.list_token;
      lists.counts = params.counts == nullptr ? nullptr : params.counts + first * params.count_token;
      lists.rows = static_cast<int>(count);
      lists.room = lists.rows * lists.entries;
      launch_transpose(transposing, lists, stream);
      put(kernel, params, IndexLossStep::keys, sum_blocks, stream);
    }
    first += count;
  } while (first < work.tokens);
}

void IndexLoss::prepare() const {
  prepared_kernel(*state_);
  prepared_kernel(transposing_state(state_->context));
}

const std::string& IndexLoss::source() const { return state_->programs.every_size.source; }

IndexLoss index_loss(const IndexLossSpec& spec, const Context& context) {
  validate(spec);
  return operation<IndexLoss>(context, spec, words_of(spec), [&] { return index_loss_program(spec); });
}

}  // namespace jit
