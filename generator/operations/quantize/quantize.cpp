#include <jit/quantize.h>

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include <jit/device.h>

#include "generator/context/context_state.h"
#include "generator/operations/operation.h"
#include "generator/operations/quantize/arguments.h"
#include "generator/operations/quantize/program.h"
#include "generator/operations/quantize/resident.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 18> words_of(const QuantizeSpec& spec) {
  const auto& [dtype, out_dtype, head_dim, head_dim_v, alignment, scales, value_scales, norm, norm_dtype,
               norm_adds_one, norm_eps, rotary_dim, rotary_interleaved, cos_sin_dtype, rotate, center_keys,
               center_values, sequences, keep_rows] = spec;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  constexpr std::uint64_t quantize = 4;  // unique to this operation
  return {quantize,
          word(dtype),
          word(out_dtype),
          word(head_dim),
          word(head_dim_v),
          word(alignment),
          word(scales),
          word(value_scales),
          word(norm) | word(norm_adds_one) << 1 | word(rotary_interleaved) << 2,
          word(norm_dtype),
          word(std::bit_cast<std::uint32_t>(norm_eps)),
          word(rotary_dim),
          word(cos_sin_dtype),
          word(rotate),
          word(center_keys),
          word(center_values),
          word(sequences),
          word(keep_rows)};
}

// The number of units between the first and second read of a unit: few, so that rows are still in L2, but
// enough to hide waits. Each block has this many pieces in between: one for pieces in flight, and one for
// summation, or three if it is per column.
int lag_of(const QuantizeSpec& spec, const QuantizeParams& params, int resident_blocks) {
  int pieces = 0, each = 2;
  for (const auto& [tensor, own] : {std::pair{QkvTensor::q, &params.q}, std::pair{QkvTensor::k, &params.k},
                                    std::pair{QkvTensor::v, &params.v}}) {
    const int statistics = quantized_tensor_facts(spec, tensor).statistics;
    pieces += own->items * (statistics > 0 ? 2 : 1);
    if (statistics > 1) each = 4;
  }
  const int between = each * resident_blocks;
  return std::clamp((between + pieces / 2) / std::max(1, pieces), 1, params.units);
}

OperationPrograms programs_of(const QuantizeSpec& spec) {
  validate(spec);
  if (spec.keep_rows == KeepRows::never || !cannot_keep_rows(spec).empty()) return quantize_program(spec);
  return {quantize_program(spec), resident_quantize_program(spec)};
}

// Whether a call keeps rows; `two_looks` is the kernel that reads them twice.
bool keeps_rows(const OperationState& state, const QuantizeSpec& spec, const QuantizeParams& params,
                const LoadedKernel& two_looks) {
  const bool is_wanted = spec.keep_rows == KeepRows::always;
  if (!state.programs.some_sizes) return false;
  const Arch& arch = two_looks.image->target.arch;
  const std::string why = can_keep_rows(arch) ? cannot_keep_rows(spec, params, two_looks.sm_count)
                                              : fmt::format("{} keeps no rows; sm_90a does", to_string(arch));
  if (is_wanted && !why.empty())
    refuse("q", fmt::format("and k and v cannot be resident, as spec.keep_rows = always wants: {}", why));
  return why.empty() && (is_wanted || gains_by_keeping_rows(spec, params, two_looks.sm_count));
}

}  // namespace

void check_arguments(const QuantizeSpec& spec, const QuantizeArguments& arguments) {
  QuantizeParams unused;
  fill_params(spec, arguments, unused);
}

void QuantizeQkv::operator()(const QuantizeArguments& arguments, Stream stream) const {
  QuantizeParams params;
  const QuantizeSizes sizes = fill_params(spec_, arguments, params);
  if (sizes.pieces == 0) return;
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  if (keeps_rows(*state_, spec_, params, kernel)) {
    const LoadedKernel& keeping =
        kernel_for_launch(*state_, device.ordinal(), stream, OperationProgram::some_sizes);
    // The other kernel replaces an unavailable one.
    const bool has_room =
        &keeping != &kernel && cannot_keep_rows(spec_, params, keeping.resident_blocks).empty();
    if (has_room)
      return launch_resident(state_->context.memory, spec_, params, keeping, keeping.resident_blocks, stream);
  }
  params.lag = lag_of(spec_, params, kernel.resident_blocks);
  StreamLease lease(state_->context.memory, kernel.device, stream);
  if (sizes.counter_bytes > 0) {
    place_workspace(params, static_cast<std::byte*>(lease.workspace(sizes.workspace_bytes)));
    params.counters = static_cast<unsigned*>(lease.mailbox(sizes.counter_bytes));
  }
  try {
    launch_operation(kernel, {static_cast<unsigned>(std::min(sizes.pieces, kernel.resident_blocks)), 1},
                     &params, stream);
  } catch (const Error&) {
    lease.reset();
    throw;
  }
}

void QuantizeQkv::prepare() const {
  const LoadedKernel& kernel = prepared_kernel(*state_);
  if (state_->programs.some_sizes && can_keep_rows(kernel.image->target.arch))
    faster_kernel(*state_, OperationProgram::some_sizes);
}

const std::string& QuantizeQkv::source() const { return state_->programs.every_size.source; }

QuantizeQkv quantize_qkv(const QuantizeSpec& spec, const Context& context) {
  return operation<QuantizeQkv>(context, spec, words_of(spec), [&] { return programs_of(spec); });
}

}  // namespace jit
