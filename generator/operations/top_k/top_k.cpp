#include <jit/top_k.h>

#include <array>
#include <cstdint>

#include <jit/device.h>

#include "generator/launch/ceil_div.h"
#include "generator/operations/operation.h"
#include "generator/operations/top_k/arguments.h"
#include "generator/operations/top_k/program.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 6> words_of(const TopKSpec& spec) {
  const auto& [dtype, k, init_blocks, local_blocks, page_size] = spec;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  constexpr std::uint64_t top_k = 9;  // unique to this operation
  return {top_k, word(dtype), word(k), word(init_blocks), word(local_blocks), word(page_size)};
}

// Clusters, whose blocks access one another's shared memory, need sm_90.
bool can_share_rows(const LoadedKernel& kernel) { return kernel.image->target.arch.major >= 9; }

}  // namespace

void check_arguments(const TopKSpec& spec, const TopKArguments& arguments) {
  TopKParams unused;
  fill_params(spec, arguments, unused);
}

void TopK::operator()(const TopKArguments& arguments, Stream stream) const {
  TopKParams params;
  if (!fill_params(spec_, arguments, params)) return;
  const CurrentDevice device;
  const int units = params.rows * params.heads;
  const LoadedKernel* kernel = &kernel_for_launch(*state_, device.ordinal(), stream);
  // Several blocks share a long row if all are co-resident.
  const bool are_few = units <= kernel->resident_blocks / top_k_cluster;
  if (are_few && params.columns > top_k_shared_columns && can_share_rows(*kernel))
    kernel = &kernel_for_launch(*state_, device.ordinal(), stream, OperationProgram::some_sizes);
  const int blocks = params.columns <= top_k_warp_columns ? ceil_div(units, top_k_threads / 32)
                                                          : units * kernel->image->program.cluster;
  launch_operation(*kernel, {static_cast<unsigned>(blocks), 1}, &params, stream);
}

void TopK::prepare() const {
  if (can_share_rows(prepared_kernel(*state_))) faster_kernel(*state_, OperationProgram::some_sizes);
}

const std::string& TopK::source() const { return state_->programs.every_size.source; }

TopK top_k(const TopKSpec& spec, const Context& context) {
  return operation<TopK>(context, spec, words_of(spec), [&] {
    validate(spec);
    return OperationPrograms(top_k_program(spec), top_k_program(spec, top_k_cluster));
  });
}

}  // namespace jit
