#include "generator/problem/descale_arguments.h"

#include "generator/problem/argument_table.h"
#include "generator/problem/arguments.h"

namespace jit {

DescaleParams descale_params(const AttentionSpec& spec, const AttentionArguments& arguments) {
  if (!has_fp8_keys(spec)) return {};
  const Dims dims = dims_of_scales(spec);
  return {.q = static_cast<const float*>(arguments.q_descale.data),
          .k = static_cast<const float*>(arguments.k_descale.data),
          .v = static_cast<const float*>(arguments.v_descale.data),
          .q_strides = strides_of(dims, arguments.q_descale),
          .k_strides = strides_of(dims, arguments.k_descale),
          .v_strides = strides_of(dims, arguments.v_descale)};
}

}  // namespace jit
