#include <jit/append.h>

#include <algorithm>
#include <bit>

#include <jit/device.h>

#include "generator/launch/ceil_div.h"
#include "generator/operations/append/arguments.h"
#include "generator/operations/append/program.h"
#include "generator/operations/operation.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 16> words_of(const AppendSpec& spec) {
  const auto& [dtype, cache_dtype, scale_per, head_dim, head_dim_v, alignment, rotary_dim, rotary_interleaved,
               cos_sin_dtype, sections, mrope_interleaved, norm, norm_dtype, norm_adds_one, norm_eps] = spec;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  constexpr std::uint64_t append = 2;  // unique to this operation
  return {append,
          word(dtype),
          word(cache_dtype.value_or(dtype)),
          word(head_dim),
          word(head_dim_v),
          word(alignment),
          word(rotary_dim),
          word(rotary_interleaved),
          word(cos_sin_dtype),
          word(sections[0]),
          word(sections[1]),
          word(sections[2]),
          word(mrope_interleaved),
          word(norm) | word(norm_adds_one) << 1 | word(scale_per) << 2,
          word(norm_dtype),
          word(std::bit_cast<std::uint32_t>(norm_eps))};
}

// With many tokens, one block has all rows of a token, so that its cosines and sines are read once; with few,
// rows are split over enough blocks to fill the device.
int rows_per_block(const BlockAppendParams& params, int rows_at_once, int sm_count) {
  constexpr int blocks_per_sm = 8;
  const int rows = params.heads_q + 2 * params.heads_kv;
  const int steps = ceil_div(rows, rows_at_once);
  const int wanted = ceil_div(blocks_per_sm * sm_count, params.tokens);
  return ceil_div(steps, std::clamp(wanted, 1, steps)) * rows_at_once;
}

// Like fill_params without a state, unless the last call had the same shapes (KnownAppend).
bool fill_params(const OperationState& state, const AppendSpec& spec, const AppendArguments& arguments,
                 BlockAppendParams& params) {
  bool is_known = false;
  state.last_call.use([&](const std::optional<std::shared_ptr<void>>& last) {
    if (!last) return;
    const auto& known = *static_cast<const KnownAppend*>(last->get());
    is_known = known.tensors.vouch_for(arguments);
    if (is_known) params = known.params;
  });
  if (is_known) {
    set_pointers(spec, arguments, params);
    return true;
  }
  if (!fill_params(spec, arguments, params)) return false;
  state.last_call.use([&](std::optional<std::shared_ptr<void>>& last) {
    last = std::make_shared<KnownAppend>(spec, arguments, params);
  });
  return true;
}

}  // namespace

void check_arguments(const AppendSpec& spec, const AppendArguments& arguments) {
  BlockAppendParams unused;
  fill_params(spec, arguments, unused);
}

void Append::operator()(const AppendArguments& arguments, Stream stream) const {
  BlockAppendParams params;
  if (!fill_params(*state_, spec_, arguments, params)) return;
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  params.rows_per_block =
      rows_per_block(params, static_cast<int>(kernel.threads) / append_lanes(spec_), kernel.sm_count);
  const int blocks = ceil_div(params.heads_q + 2 * params.heads_kv, params.rows_per_block);
  launch_operation(kernel, {static_cast<unsigned>(params.tokens), static_cast<unsigned>(blocks)}, &params,
                   stream);
}

void Append::prepare() const { prepared_kernel(*state_); }

const std::string& Append::source() const { return state_->programs.every_size.source; }

Append append(const AppendSpec& spec, const Context& context) {
  return operation<Append>(context, spec, words_of(spec), [&] {
    validate(spec);
    return append_program(spec);
  });
}

}  // namespace jit
