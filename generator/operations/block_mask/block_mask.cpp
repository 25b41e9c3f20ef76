#include <jit/block_mask.h>

#include <utility>

#include <jit/device.h>

#include "generator/operations/block_mask/arguments.h"
#include "generator/operations/block_mask/program.h"
#include "generator/operations/operation.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 7> words_of(const BlockMaskSpec& spec) {
  const auto& [mask, block_q, block_kv, varlen_q, varlen_kv, scores] = spec;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  constexpr std::uint64_t block_mask = 3;  // unique to this operation
  return {block_mask,     mask.hash(),     word(block_q), word(block_kv),
          word(varlen_q), word(varlen_kv), word(scores)};
}

}  // namespace

void check_arguments(const BlockMaskSpec& spec, const BlockMaskArguments& arguments) {
  BlockMaskParams unused;
  fill_params(spec, arguments, unused);
}

void BlockMask::operator()(const BlockMaskArguments& arguments, Stream stream) const {
  BlockMaskParams params;
  const BlockMaskGrids grids = fill_params(spec_, arguments, params);
  if (grids == BlockMaskGrids{}) return;
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  for (const auto& [step, blocks] : {std::pair{BlockMaskStep::classes, grids.classes},
                                     {BlockMaskStep::lists, grids.lists},
                                     {BlockMaskStep::order, grids.order},
                                     {BlockMaskStep::scores, grids.scores}}) {
    params.step = step;
    if (blocks != 0) launch_operation(kernel, {blocks, 1}, &params, stream);
  }
}

void BlockMask::prepare() const { prepared_kernel(*state_); }

const std::string& BlockMask::source() const { return state_->programs.every_size.source; }

BlockMask block_mask(const BlockMaskSpec& spec, const Context& context) {
  return operation<BlockMask>(context, spec, words_of(spec), [&] {
    validate(spec);
    return block_mask_program(spec);
  });
}

}  // namespace jit
