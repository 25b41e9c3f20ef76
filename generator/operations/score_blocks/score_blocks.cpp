#include <jit/score_blocks.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <jit/device.h>
#include <jit/spec_table.h>

#include "cache/digest.h"
#include "generator/operations/operation.h"
#include "generator/operations/score_blocks/arguments.h"
#include "generator/operations/score_blocks/program.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 6> words_of(const ScoreBlocksSpec& spec) {
  const auto& [attention, block_size, reduction, key_span] = spec;
  std::vector<std::uint64_t> words;
  for (const SpecField& field : spec_fields()) words.push_back(value_word(field, attention));
  const Digest known = digest(std::as_bytes(std::span(words)));
  constexpr std::uint64_t score_blocks = 11;  // unique to this operation
  return {score_blocks,
          known.high,
          known.low,
          static_cast<std::uint64_t>(block_size),
          static_cast<std::uint64_t>(reduction),
          static_cast<std::uint64_t>(key_span)};
}

}  // namespace

void check_arguments(const ScoreBlocksSpec& spec, const ScoreBlocksArguments& arguments) {
  ScoreBlocksParams unused;
  fill_params(spec, arguments, unused);
}

void ScoreBlocks::operator()(const ScoreBlocksArguments& arguments, Stream stream) const {
  ScoreBlocksParams params;
  if (!fill_params(spec_, arguments, params)) return;
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  fill_work(spec_, kernel.sm_count, params);
  const auto blocks = static_cast<unsigned>(std::min(params.items, kernel.sm_count));
  launch_operation(kernel, {blocks, 1}, &params, stream);
}

void ScoreBlocks::prepare() const {
  check_has_wgmma("score_blocks");
  prepared_kernel(*state_);
}

const std::string& ScoreBlocks::source() const { return state_->programs.every_size.source; }

ScoreBlocks score_blocks(const ScoreBlocksSpec& spec, const Context& context) {
  validate(spec);
  check_has_wgmma("score_blocks");
  return operation<ScoreBlocks>(context, spec, words_of(spec), [&] { return score_blocks_program(spec); });
}

}  // namespace jit
