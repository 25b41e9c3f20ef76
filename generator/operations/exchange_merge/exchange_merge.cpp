#include <jit/exchange_merge.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

#include <jit/device.h>

#include "generator/operations/exchange_merge/arguments.h"
#include "generator/operations/exchange_merge/program.h"
#include "generator/operations/operation.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 7> words_of(const ExchangeMergeSpec& spec) {
  const auto& [dtype, out_dtype, head_dim_v, alignment, ranks, share] = spec;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  constexpr std::uint64_t exchange_merge = 7;  // unique to this operation
  return {exchange_merge,  word(dtype), word(out_dtype), word(head_dim_v),
          word(alignment), word(ranks), word(share)};
}

}  // namespace

void check_arguments(const ExchangeMergeSpec& spec, const ExchangeMergeArguments& arguments) {
  ExchangeMergeParams unused;
  fill_params(spec, arguments, unused);
}

void ExchangeMerge::operator()(const ExchangeMergeArguments& arguments, Stream stream) const {
  ExchangeMergeParams params;
  const unsigned tiles = fill_params(spec_, arguments, params);
  if (tiles == 0) return;
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  // All blocks must be co-resident: peers wait for them.
  launch_operation(kernel, {std::min(tiles, static_cast<unsigned>(std::max(kernel.resident_blocks, 1))), 1},
                   &params, stream);
}

void ExchangeMerge::prepare() const { prepared_kernel(*state_); }

const std::string& ExchangeMerge::source() const { return state_->programs.every_size.source; }

ExchangeMerge exchange_merge(const ExchangeMergeSpec& spec, const Context& context) {
  return operation<ExchangeMerge>(context, spec, words_of(spec), [&] {
    validate(spec);
    return OperationPrograms(exchange_merge_program(spec));
  });
}

std::string ExchangeFault::to_string() const {
  if (rows_seen < 0) return fmt::format("rank {} has had a fault before call {}", peer, call);
  if (call_seen == call) {
    return fmt::format(
        "rank {} exchanges {} rows in call {}, and this rank {}: all must have the same tokens and heads",
        peer, rows_seen, call, rows);
  }
  return fmt::format("rank {} has not delivered call {} in time; {}", peer, call,
                     call_seen == 0
                         ? std::string("it has delivered none of the calls that use this half of the buffer")
                         : fmt::format("the last that was seen was {}", call_seen));
}

std::optional<ExchangeFault> exchange_fault(const void* buffer, Stream stream) {
  if (buffer == nullptr) return std::nullopt;
  ExchangeFaultRecord record{};
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(buffer) + offsetof(ExchangeHeader, fault);
  const auto handle = static_cast<CUstream>(stream);
  const std::optional<int> owner = device_of_address(reinterpret_cast<std::uintptr_t>(buffer));
  const CurrentDevice device(owner.value_or(current_device()));
  check(driver().cuMemcpyDtoHAsync(&record, address, sizeof record, handle), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(handle), "cuStreamSynchronize");
  if (record.has_fault == 0) return std::nullopt;
  return ExchangeFault{
      .peer = static_cast<int>(record.peer),
      .call = record.epoch,
      .call_seen = record.epoch_seen,
      .rows = record.rows,
      .rows_seen = record.rows_seen == ~0u ? -1 : static_cast<std::int64_t>(record.rows_seen)};
}

}  // namespace jit
