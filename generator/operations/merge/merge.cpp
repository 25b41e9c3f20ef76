#include <jit/merge.h>

#include <array>

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
  const auto rows_per_block = static_cast<unsigned>(merge_rows_per_block(spec_));
  const std::array blocks = {(params.rows + rows_per_block - 1) / rows_per_block, 1u};
  OperationProgram wanted = merge_program_for(spec_, params.states);
  if (wanted == OperationProgram::some_sizes) {
    MergePairParams pair;
    if (fill_pair(spec_, params, pair)) {
      const LoadedKernel& any = kernel_for_launch(*state_, device.ordinal(), stream);
      const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream, wanted);
      if (&kernel != &any) return launch_operation(kernel, blocks, &pair, stream);
    }
    wanted = OperationProgram::every_size;
  }
  launch_operation(kernel_for_launch(*state_, device.ordinal(), stream, wanted), blocks, &params, stream);
}

void Merge::prepare() const {
  prepared_kernel(*state_);
  faster_kernel(*state_, OperationProgram::some_sizes);
  if (state_->programs.other_sizes) faster_kernel(*state_, OperationProgram::other_sizes);
}

const std::string& Merge::source() const { return state_->programs.every_size.source; }

Merge merge(const MergeSpec& spec, const Context& context) {
  return operation<Merge>(context, spec, words_of(spec), [&] {
    validate(spec);
    return merge_programs(spec);
  });
}

}  // namespace jit
