#include <jit/score_keys.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <jit/device.h>

#include "generator/operations/operation.h"
#include "generator/operations/score_keys/arguments.h"
#include "generator/operations/score_keys/program.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 7> words_of(const ScoreKeysSpec& spec) {
  const auto& [dtype, heads, head_dim, page_size, k_scale, block_max] = spec;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  constexpr std::uint64_t score_keys = 10;  // unique to this operation
  return {score_keys,      word(dtype),   word(heads),    word(head_dim),
          word(page_size), word(k_scale), word(block_max)};
}

}  // namespace

void check_arguments(const ScoreKeysSpec& spec, const ScoreKeysArguments& arguments) {
  ScoreKeysParams unused;
  fill_params(spec, arguments, unused);
}

void ScoreKeys::operator()(const ScoreKeysArguments& arguments, Stream stream) const {
  ScoreKeysParams params;
  if (!fill_params(spec_, arguments, params)) return;
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  fill_work(spec_, arguments, kernel.sm_count, params);
  const auto blocks = static_cast<unsigned>(std::min(params.items, kernel.sm_count));
  launch_operation(kernel, {blocks, 1}, &params, stream);
}

void ScoreKeys::prepare() const {
  check_has_wgmma("score_keys");
  prepared_kernel(*state_);
}

const std::string& ScoreKeys::source() const { return state_->programs.every_size.source; }

ScoreKeys score_keys(const ScoreKeysSpec& spec, const Context& context) {
  validate(spec);
  check_has_wgmma("score_keys");
  return operation<ScoreKeys>(context, spec, words_of(spec), [&] { return score_keys_program(spec); });
}

}  // namespace jit
