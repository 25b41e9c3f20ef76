#include <jit/merge.h>

#include <algorithm>

#include <jit/device.h>

#include "generator/operations/merge/arguments.h"
#include "generator/operations/merge/program.h"
#include "generator/operations/operation.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 6> words_of(const MergeSpec& spec) {
  const auto& [dtype, out_dtype, head_dim_v, alignment, views] = spec;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  constexpr std::uint64_t merge = 1;  // unique to this operation
  return {merge, word(dtype), word(out_dtype), word(head_dim_v), word(alignment), word(views)};
}

}  // namespace

void check_arguments(const MergeSpec& spec, const MergeArguments& arguments) {
  MergeParams<max_merge_views> unused;
  fill_params(spec, arguments, unused);
}

void Merge::operator()(const MergeArguments& arguments, Stream stream) const {
  MergeParams<max_merge_views> params;
  if (!fill_params(spec_, arguments, params)) return;
  const CurrentDevice device;
  const bool many = is_of_many_states(spec_, params.states);
  const LoadedKernel& kernel = kernel_for_launch(
      *state_, device.ordinal(), stream, many ? OperationProgram::some_sizes : OperationProgram::every_size);
  const unsigned rows_per_block = kernel.threads / static_cast<unsigned>(merge_lanes(spec_).lanes);
  const auto resident = static_cast<unsigned>(merge_blocks_per_sm(many) * kernel.sm_count);
  launch_operation(kernel, {std::min((params.rows + rows_per_block - 1) / rows_per_block, resident), 1},
                   &params, stream);
}

void Merge::prepare() const {
  prepared_kernel(*state_);
  if (state_->programs.some_sizes) prepared_kernel(*state_, OperationProgram::some_sizes);
}

const std::string& Merge::source() const { return state_->programs.every_size.source; }

Merge merge(const MergeSpec& spec, const Context& context) {
  return operation<Merge>(context, spec, words_of(spec), [&] {
    validate(spec);
    std::vector<Program> programs = merge_programs(spec);
    if (programs.size() == 1) return OperationPrograms(std::move(programs[0]));
    return OperationPrograms(std::move(programs[0]), std::move(programs[1]));
  });
}

}  // namespace jit
