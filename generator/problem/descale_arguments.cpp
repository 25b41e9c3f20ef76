#include "generator/problem/descale_arguments.h"

#include "generator/problem/argument_table.h"
#include "generator/problem/arguments.h"

namespace jit {

DescaleParams descale_params(const AttentionSpec& spec, const AttentionArguments& arguments) {
  if (!has_fp8_keys(spec)) return {};
  return {.q = static_cast<const float*>(arguments.q_descale.data),
          .k = static_cast<const float*>(arguments.k_descale.data),
          .v = static_cast<const float*>(arguments.v_descale.data),
          .q_strides = strides_of(dims_of_query_scales(spec), arguments.q_descale),
          .k_strides = strides_of(dims_of_scales(spec), arguments.k_descale),
          .v_strides = strides_of(dims_of_value_scales(spec), arguments.v_descale),
          .v_mean = static_cast<const float*>(arguments.v_mean.data),
          .lse_shift = static_cast<const float*>(arguments.lse_shift.data),
          .v_mean_strides = strides_of(dims_of_value_columns(spec), arguments.v_mean),
          .lse_shift_strides = strides_of(dims_of_lse(spec), arguments.lse_shift)};
}

}  // namespace jit
