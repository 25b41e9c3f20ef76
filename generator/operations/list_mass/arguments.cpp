#include "generator/operations/list_mass/arguments.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "generator/operations/operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {

unsigned fill_params(const ListMassSpec& spec, const ListMassArguments& arguments, ListMassParams& params) {
  const auto& [q, k, lse, indices, counts, mass, softmax_scale] = arguments;
  constexpr int row_alignment = 16;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - 65536;
  CallSizes sizes;
  sizes.know("head_dim", spec.head_dim);
  sizes.know("lists", 1);
  sizes.check({"k", "keys, heads_kv, head_dim", spec.dtype, row_alignment}, k);
  if (sizes["heads_kv"] == 0) refuse("k", "has no heads; it must have one at least");
  sizes.know("heads_q", sizes["heads_kv"] * spec.heads);
  sizes.check({"q", "tokens, heads_q, head_dim", spec.dtype, row_alignment}, q);
  sizes.check({"lse", "heads_q, tokens", DType::fp32}, lse);
  sizes.check({"indices", "tokens, lists, entries", DType::int32}, indices);
  if (counts.is_present()) sizes.check({"counts", "tokens, lists", DType::int32}, counts);
  sizes.check({"mass", "tokens, lists, entries", DType::fp32}, mass);
  check_dense_last("indices", indices);
  check_dense_last("mass", mass);
  for (const auto& [name, size] : {std::pair{"q", sizes["tokens"]}, std::pair{"k", sizes["keys"]},
                                   std::pair{"k", sizes["heads_kv"]}, std::pair{"indices", sizes["entries"]}})
    if (size > most) refuse(name, fmt::format("has a size of {}; at most {} fit", size, most));
  check_no_self_overlap("mass", mass);
  for (const auto& [name, input] : {std::pair{"q", &q}, std::pair{"k", &k}, std::pair{"lse", &lse},
                                    std::pair{"indices", &indices}, std::pair{"counts", &counts}})
    if (input->is_present()) check_no_overlap("mass", mass, name, *input);
  const double scale = softmax_scale ? static_cast<double>(*softmax_scale) : 1 / std::sqrt(spec.head_dim);
  if (!std::isfinite(scale)) refuse("softmax_scale", fmt::format("is {}; it must be a finite number", scale));
  params = {.q = q.data,
            .q_token = stride_along(q, 0),
            .q_head = stride_along(q, 1),
            .k = k.data,
            .k_row = stride_along(k, 0),
            .k_head = stride_along(k, 1),
            .lse = static_cast<const float*>(lse.data),
            .lse_head = stride_along(lse, 0),
            .lse_token = stride_along(lse, 1),
            .lists = static_cast<const int*>(indices.data),
            .list_token = stride_along(indices, 0),
            .counts = static_cast<const int*>(counts.data),
            .count_token = counts.is_present() ? stride_along(counts, 0) : 0,
            .mass = static_cast<float*>(mass.data),
            .mass_token = stride_along(mass, 0),
            .exponent = static_cast<float>(scale * std::numbers::log2e),
            .heads_kv = static_cast<int>(sizes["heads_kv"]),
            .keys = static_cast<int>(sizes["keys"]),
            .entries = static_cast<int>(sizes["entries"])};
  return params.entries == 0 ? 0 : static_cast<unsigned>(sizes["tokens"]);
}

}  // namespace jit
