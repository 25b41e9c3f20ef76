/// @file
/// Outputs of calls beside o and LSE, where the spec asks for them: a row of a table is one output.
///
/// @code
/// jit::AttentionSpec spec;
/// spec.max_logit = true;  // for QK-clip: the largest score of each head over calls
/// jit::AttentionArguments call{.q = q, .k = k, .v = v, .o = o};
/// call.max_logit = allocate(jit::DType::fp32, {4});
/// jit::clear_output(call.max_logit, stream);
/// jit::attention(spec)(call, stream);
/// jit::attention(spec)(call, stream);  // another micro-batch may raise it
/// assert(jit::output_fields[0].name == "max_logit" && !jit::output_fields[0].is_of_rows);
/// @endcode
#pragma once

#include <array>
#include <string_view>

#include <jit/attention.h>

namespace jit {

/// An fp32 output. A raised output becomes the maximum of itself and the call's maximum, which is −inf if a query sees
/// no key, or only scores below −2^80, which count as −inf. Calls, splits of keys and ranks may therefore raise it in
/// any order, with bitwise identical results. running_lse is no maximum: each call adds its keys to it, so that the order of
/// calls decides bits. Other outputs are overwritten.
struct OutputField {
  std::string_view name;                 ///< of both members, and in Python
  bool AttentionSpec::*asked;            ///< the member of a spec that asks for it
  TensorView AttentionArguments::*view;  ///< the tensor, which a call needs where it is asked for
  bool is_of_rows;                       ///< whether it has lse's shape, else (heads_q)
  bool is_raised;  ///< whether a call reads it, and a new array begins at −inf; else it is written
};

/// All of them.
inline constexpr std::array output_fields = {
    OutputField{"max_logit", &AttentionSpec::max_logit, &AttentionArguments::max_logit, false, true},
    OutputField{"row_max", &AttentionSpec::row_max, &AttentionArguments::row_max, true, true},
    OutputField{"mean_score", &AttentionSpec::mean_score, &AttentionArguments::mean_score, true, false},
    OutputField{"o_descale", &AttentionSpec::o_descale, &AttentionArguments::o_descale, true, false},
    OutputField{"running_lse", &AttentionSpec::running_lse, &AttentionArguments::running_lse, true, true},
};

/// Sets a dense output to −inf on `stream`, on the device of the current context: its state before the first call. May
/// be captured. Thread safe. Throws Error invalid_argument for a tensor that is not dense fp32, has negative sizes, or
/// is not aligned to 4 bytes; driver_error.
void clear_output(const TensorView& output, Stream stream = nullptr);

}  // namespace jit
