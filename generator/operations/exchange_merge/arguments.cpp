#include "generator/operations/exchange_merge/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "generator/operations/exchange_merge/program.h"
#include "generator/operations/operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

constexpr std::int64_t most_rows = std::numeric_limits<std::int32_t>::max();
constexpr double longest_timeout = 1e9;  // seconds

// The part of `all` that a rank receives if it is shared.
std::int64_t part_of(std::int64_t all, std::int64_t rank, std::int64_t ranks) {
  return all * (rank + 1) / ranks - all * rank / ranks;
}

/// Numbers of tokens and heads that a rank receives.
struct Share {
  std::int64_t tokens, heads;
};
Share share_of(const ExchangeMergeSpec& spec, std::int64_t tokens, std::int64_t heads, int rank) {
  if (spec.share == ExchangeShare::heads) return {tokens, part_of(heads, rank, spec.ranks)};
  if (spec.share == ExchangeShare::tokens) return {part_of(tokens, rank, spec.ranks), heads};
  return {tokens, heads};
}

std::int64_t tiles_of(const ExchangeMergeSpec& spec, const Share& share) {
  const std::int64_t rows = share.tokens * share.heads, each = exchange_tile_rows(spec);
  return std::max<std::int64_t>(1, (rows + each - 1) / each);
}

// Most tiles that a rank receives, for which every buffer has room.
std::int64_t most_tiles(const ExchangeMergeSpec& spec, std::int64_t tokens, std::int64_t heads) {
  std::int64_t most = 0;
  for (int rank = 0; rank < spec.ranks; ++rank)
    most = std::max(most, tiles_of(spec, share_of(spec, tokens, heads, rank)));
  return most;
}

// Number of blocks with work: the larger number of tiles sent or received.
std::int64_t tiles_of_call(const ExchangeMergeSpec& spec, std::int64_t tokens, std::int64_t heads, int own) {
  std::int64_t sent = 0;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    if (rank != own) sent += tiles_of(spec, share_of(spec, tokens, heads, rank));
  }
  const std::int64_t received = tiles_of(spec, share_of(spec, tokens, heads, own));
  return std::max(spec.share == ExchangeShare::all ? 0 : sent, received);
}

void check_buffers(const ExchangeMergeSpec& spec, const ExchangeMergeArguments& arguments,
                   std::int64_t tokens, std::int64_t heads) {
  if (arguments.buffers.size() != static_cast<std::size_t>(spec.ranks))
    refuse("buffers", fmt::format("has {} buffers; spec.ranks is {}, and each rank has one",
                                  arguments.buffers.size(), spec.ranks));
  for (std::size_t i = 0; i < arguments.buffers.size(); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(arguments.buffers[i]);
    const auto refuse_it = [&](std::string why) { refuse(fmt::format("buffers[{}]", i), std::move(why)); };
    if (address == 0) refuse_it("is null; it must be the address of the rank's buffer");
    if (address % 16 != 0) refuse_it(fmt::format("is {:#x}; it must be a multiple of 16", address));
    for (std::size_t j = 0; j < i; ++j) {
      const auto other = reinterpret_cast<std::uintptr_t>(arguments.buffers[j]);
      if (address < other + arguments.buffer_bytes && other < address + arguments.buffer_bytes)
        refuse_it(fmt::format("lies over buffers[{}]; each rank has a buffer of its own", j));
    }
  }
  const std::size_t needed =
      exchange_header_bytes +
      static_cast<std::size_t>(most_tiles(spec, tokens, heads)) * exchange_tile_bytes(spec);
  if (arguments.buffer_bytes < needed) {
    refuse("buffer_bytes",
           fmt::format("is {}; {} tokens of {} heads need {}, which exchange_merge_bytes() says",
                       arguments.buffer_bytes, tokens, heads, needed));
  }
}

TensorStrides lse_strides(const TensorView& lse) {
  return {.batch = 0, .seq = stride_along(lse, 1), .head = stride_along(lse, 0)};
}

}  // namespace

std::size_t exchange_merge_bytes(const ExchangeMergeSpec& spec, std::int64_t tokens, std::int64_t heads) {
  validate(spec);
  std::int64_t rows = 0;
  if (tokens < 0) refuse("tokens", fmt::format("is {}; it must not be negative", tokens));
  if (heads < 0) refuse("heads", fmt::format("is {}; it must not be negative", heads));
  if (__builtin_mul_overflow(tokens, heads, &rows) || rows > most_rows)
    refuse("tokens", fmt::format("is {}, of {} heads: more than 2^31 rows", tokens, heads));
  return exchange_header_bytes +
         static_cast<std::size_t>(most_tiles(spec, tokens, heads)) * exchange_tile_bytes(spec);
}

unsigned fill_params(const ExchangeMergeSpec& spec, const ExchangeMergeArguments& arguments,
                     ExchangeMergeParams& params) {
  CallSizes sizes;
  sizes.know("head_dim_v", spec.head_dim_v);
  sizes.check({"o", "tokens, heads, head_dim_v", spec.dtype, spec.alignment}, arguments.o);
  sizes.check({"lse", "heads, tokens", DType::fp32}, arguments.lse);
  const std::int64_t tokens = sizes["tokens"], heads = sizes["heads"];
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(tokens, heads, &rows) || rows > most_rows)
    refuse("o", fmt::format("has more than 2^31 rows: {}", arguments.o.to_string()));
  if (arguments.rank < 0 || arguments.rank >= spec.ranks)
    refuse("rank", fmt::format("is {}; ranks go from 0 to {}", arguments.rank, spec.ranks - 1));
  if (!(arguments.timeout > 0) || arguments.timeout > longest_timeout)
    refuse("timeout", fmt::format("is {} seconds; it must be above 0 and at most 1e9", arguments.timeout));

  const Share own = share_of(spec, tokens, heads, arguments.rank);
  CallSizes received;
  received.know("head_dim_v", spec.head_dim_v);
  received.know("tokens", own.tokens);
  received.know("heads", own.heads);
  received.check({"out", "tokens, heads, head_dim_v", spec.out_dtype, spec.alignment}, arguments.out);
  check_no_self_overlap("out", arguments.out);
  check_no_overlap("out", arguments.out, "o", arguments.o);
  check_no_overlap("out", arguments.out, "lse", arguments.lse);
  const bool has_lse = arguments.out_lse.is_present();
  if (has_lse) {
    received.check({"out_lse", "heads, tokens", DType::fp32}, arguments.out_lse);
    check_no_self_overlap("out_lse", arguments.out_lse);
    check_no_overlap("out_lse", arguments.out_lse, "out", arguments.out);
    check_no_overlap("out_lse", arguments.out_lse, "o", arguments.o);
    check_no_overlap("out_lse", arguments.out_lse, "lse", arguments.lse);
  }
  check_buffers(spec, arguments, tokens, heads);

  params.o = arguments.o.data;
  params.lse = static_cast<const float*>(arguments.lse.data);
  params.out = arguments.out.data;
  params.out_lse = has_lse ? static_cast<float*>(arguments.out_lse.data) : nullptr;
  params.o_strides = row_strides(arguments.o);
  params.lse_strides = lse_strides(arguments.lse);
  params.out_strides = row_strides(arguments.out);
  params.out_lse_strides = has_lse ? lse_strides(arguments.out_lse) : TensorStrides{};
  std::fill(std::begin(params.buffers), std::end(params.buffers), nullptr);
  for (std::size_t i = 0; i < arguments.buffers.size(); ++i)
    params.buffers[i] = static_cast<char*>(arguments.buffers[i]);
  params.rank = static_cast<unsigned>(arguments.rank);
  params.tokens = static_cast<unsigned>(tokens);
  params.heads = static_cast<unsigned>(heads);
  params.tiles = static_cast<unsigned>(std::min<std::size_t>(
      (arguments.buffer_bytes - exchange_header_bytes) / exchange_tile_bytes(spec), most_rows));
  params.timeout = static_cast<unsigned long long>(std::ceil(arguments.timeout * 1e9));
  if (rows == 0) return 0;
  return static_cast<unsigned>(tiles_of_call(spec, tokens, heads, arguments.rank));
}

}  // namespace jit
