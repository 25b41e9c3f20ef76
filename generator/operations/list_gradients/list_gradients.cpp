#include <jit/list_gradients.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <jit/device.h>
#include <jit/spec_table.h>

#include "cache/digest.h"
#include "generator/context/context_state.h"
#include "generator/kernels/listed_gradients.h"
#include "generator/launch/stream_memory.h"
#include "generator/operations/list_gradients/arguments.h"
#include "generator/operations/list_gradients/listed_launch.h"
#include "generator/operations/list_gradients/program.h"
#include "generator/operations/operation.h"
#include "generator/operations/transpose_lists/launch.h"
#include "runtime/launch.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 4> words_of(const ListGradientsSpec& spec) {
  const auto& [attention, part_bytes] = spec;
  std::vector<std::uint64_t> words;
  for (const SpecField& field : spec_fields()) words.push_back(value_word(field, attention));
  const Digest known = digest(std::as_bytes(std::span(words)));
  constexpr std::uint64_t list_gradients = 22;  // unique to this operation
  return {list_gradients, known.high, known.low, static_cast<std::uint64_t>(part_bytes)};
}

// Whether a device has the faster program: wgmma, or 227 KB of shared memory for a block.
bool has_faster(const ListGradientsSpec& spec, const OperationState& state, const LoadedKernel& kernel) {
  const Arch arch = kernel.image->target.arch;
  if (!state.programs.some_sizes) return false;
  if (listed_gradients::serves(spec.attention)) return arch == Arch{9, 0, 'a'};
  return arch.major == 9 || arch.major == 10;
}

void put(const LoadedKernel& kernel, ListGradientsParams& params, ListGradientStep step, std::int64_t blocks,
         Stream stream) {
  if (blocks == 0) return;
  params.step = step;
  void* parameters[] = {&params};
  launch(kernel.kernel.handle(),
         {.grid = {static_cast<unsigned>(blocks), 1, 1},
          .block = {kernel.threads, 1, 1},
          // Sums use none of it, which raises occupancy.
          .smem_bytes = step == ListGradientStep::lists ? kernel.smem_bytes : list_gradient_threads * 4,
          .dependent = kernel.image->target.arch.major >= 9},
         parameters, stream);
}

}  // namespace

void check_arguments(const ListGradientsSpec& spec, const BackwardArguments& arguments) {
  ListGradientsParams unused;
  fill_params(spec, arguments, unused);
}

void ListGradients::operator()(const BackwardArguments& arguments, Stream stream) const {
  ListGradientsParams params;
  const ListGradientsWork work = fill_params(spec_, arguments, params);
  const AttentionParams& attention = params.attention;
  if (attention.heads_q == 0) return;
  const CurrentDevice device;
  const LoadedKernel& small = kernel_for_launch(*state_, device.ordinal(), stream);
  const bool is_listed = listed_gradients::serves(spec_.attention);
  const LoadedKernel& kernel =
      has_faster(spec_, *state_, small) && (!is_listed || can_launch_listed(params))
          ? kernel_for_launch(*state_, device.ordinal(), stream, OperationProgram::some_sizes)
          : small;
  const LoadedKernel& transposing = transposing_kernel(state_->context, device.ordinal(), stream);
  StreamLease lease(state_->context.memory, kernel.device, stream);
  // Where the faster one is not at hand the other one stands in for it.
  if (is_listed && &kernel != &small) {
    launch_listed(spec_, work, kernel, transposing, lease, params, stream);
    if (params.gradients.d_sinks != nullptr)
      put(small, params, ListGradientStep::sinks, attention.heads_q, stream);
    return;
  }
  TransposeListsParams lists{};
  place_memory(spec_, work, static_cast<std::byte*>(lease.workspace(work.bytes)), params, lists);

  const std::int64_t pieces = list_part_columns(spec_.attention.head_dim, spec_.attention.value_head_dim(),
                                                spec_.attention.values_in_keys) /
                              4;
  const std::int64_t sums = std::int64_t{attention.sequences.total_k} * attention.heads_kv * pieces;
  const std::int64_t sum_blocks = (sums + list_gradient_threads - 1) / list_gradient_threads;
  std::int64_t first = 0;
  do {  // also once without lists, to clear gradients
    const std::int64_t count = std::min(work.lists - first, work.at_once);
    params.first_list = static_cast<int>(first);
    params.lists = static_cast<int>(count);
    params.is_first = first == 0;
    first += count;
    params.is_last = first == work.lists;
    lists.rows = params.lists;
    lists.room = params.lists * lists.entries;
    put(kernel, params, ListGradientStep::lists, count * attention.heads_kv, stream);
    launch_transpose(transposing, lists, stream);
    put(kernel, params, ListGradientStep::keys, sum_blocks, stream);
  } while (first < work.lists);
  if (params.gradients.d_sinks != nullptr)
    put(kernel, params, ListGradientStep::sinks, attention.heads_q, stream);
}

void ListGradients::prepare() const {
  if (has_faster(spec_, *state_, prepared_kernel(*state_)))
    faster_kernel(*state_, OperationProgram::some_sizes);
  prepared_kernel(transposing_state(state_->context));
}

const std::string& ListGradients::source() const { return state_->programs.every_size.source; }

ListGradients list_gradients(const ListGradientsSpec& spec, const Context& context) {
  validate(spec);
  return operation<ListGradients>(context, spec, words_of(spec),
                                  [&] { return list_gradients_programs(spec); });
}

}  // namespace jit
