// Outputs besides o and LSE: which families compute them, and why others do not.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jit/outputs.h>
#include <jit/spec.h>
#include <jit/spec_table.h>

namespace jit {

/// The outputs of a family. Families that keep row maxima have two; o_descale belongs to those that write
/// 8-bit o.
using FamilyOutputs = std::span<bool AttentionSpec::*const>;
inline constexpr std::array largest_scores = {&AttentionSpec::max_logit, &AttentionSpec::row_max};
inline constexpr std::array all_outputs = {&AttentionSpec::max_logit, &AttentionSpec::row_max,
                                           &AttentionSpec::o_descale, &AttentionSpec::mean_score};

/// Outputs of families whose epilogue merges results over several calls.
inline constexpr std::array outputs_over_calls = {&AttentionSpec::max_logit, &AttentionSpec::row_max,
                                                  &AttentionSpec::o_descale, &AttentionSpec::mean_score,
                                                  &AttentionSpec::running_lse};

/// Outputs with gradients.
inline constexpr std::array differentiated = {&AttentionSpec::mean_score};

/// Whether a spec requests one of these outputs.
constexpr bool asks_for(const AttentionSpec& spec, FamilyOutputs outputs) {
  for (bool AttentionSpec::*const asked : outputs) {
    if (spec.*asked) return true;
  }
  return false;
}

/// Rejects outputs of a spec whose kernels keep no scores.
std::optional<Refusal> refuse_outputs(const SpecField& field, const AttentionSpec& spec);

/// Rejects mean scores of a spec whose kernels do not compute them.
std::optional<Refusal> refuse_mean_score(const SpecField& field, const AttentionSpec& spec);
/// Rejects computed row scales for other than 8-bit o, or for rows that exceed a warp.
std::optional<Refusal> refuse_output_scales(const SpecField& field, const AttentionSpec& spec);
/// Rejects 8-bit o, with `field` out_dtype, for a spec whose kernels do not write it.
std::optional<Refusal> refuse_quantized_output(const SpecField& field, const AttentionSpec& spec);

/// Rejects results over several calls where kernels cannot add to them.
std::optional<Refusal> refuse_running_lse(const SpecField& field, const AttentionSpec& spec);

/// Spec fields that request outputs.
inline constexpr std::array output_spec_fields = {
    SpecField{.name = "max_logit",
              .member = &AttentionSpec::max_logit,
              .doc = "whether calls update the largest score of each query head; needs 16-bit k and v",
              .record_name = "max_logit",
              .comment = "the largest score of each head is written",
              .text_label = " max_logit=",
              .name_label = "_max_logit_",
              .is_line_if_set = true,
              .refusal = refuse_outputs,
              .samples = [] { return std::vector<AttentionSpec>{{.max_logit = true}}; }},
    SpecField{.name = "row_max",
              .member = &AttentionSpec::row_max,
              .doc = "whether calls update the largest score of each query; needs 16-bit k and v",
              .record_name = "row_max",
              .comment = "the largest score of each query is written",
              .text_label = " row_max=",
              .name_label = "_row_max_",
              .is_line_if_set = true,
              .refusal = refuse_outputs,
              .samples = [] { return std::vector<AttentionSpec>{{.row_max = true}}; }},
    SpecField{
        .name = "mean_score",
        .member = &AttentionSpec::mean_score,
        .doc = "whether calls write the mean score of each query; needs 16-bit k and v, without split_keys",
        .record_name = "mean_score",
        .comment = "the mean score of each query is written",
        .text_label = " mean_score=",
        .name_label = "_mean_score_",
        .is_line_if_set = true,
        .refusal = refuse_mean_score,
        .samples = [] { return std::vector<AttentionSpec>{{.mean_score = true}}; }},
    SpecField{
        .name = "o_descale",
        .member = &AttentionSpec::o_descale,
        .doc = "with out_dtype fp8_e4m3 or int8: whether calls compute a scale for each row of o; otherwise "
               "they give scales",
        .record_name = "o_descale",
        .comment = "a scale is computed for each row of O",
        .text_label = " o_descale=",
        .name_label = "_o_descale_",
        .is_line_if_set = true,
        .refusal = refuse_output_scales,
        .samples = [] { return std::vector<AttentionSpec>{{.out_dtype = DType::int8, .o_descale = true}}; },
        .base = [] { return AttentionSpec{.out_dtype = DType::int8}; }},
    SpecField{
        .name = "running_lse",
        .member = &AttentionSpec::running_lse,
        .doc = "whether calls add their keys to o, of fp32, and running_lse, results over other keys",
        .record_name = "running_lse",
        .comment = "keys are added to results over others",
        .text_label = " running_lse=",
        .name_label = "_running_",
        .is_line_if_set = true,
        .refusal = refuse_running_lse,
        .samples = [] { return std::vector<AttentionSpec>{{.out_dtype = DType::fp32, .running_lse = true}}; },
        .base = [] { return AttentionSpec{.out_dtype = DType::fp32}; }},
};

/// Rejects an output functor of a spec whose kernels do not apply it.
std::optional<Refusal> refuse_output_functor(const SpecField& field, const AttentionSpec& spec);

/// The spec field of functions applied to o before it is stored.
inline constexpr SpecField output_functor_field{
    .name = "output",
    .member = &AttentionSpec::output,
    .doc = "functions applied to o in fp32 before it is written: a gate, a residual, a text",
    .record_name = "output_functor",
    .text_label = " output=",
    .name_label = "_output_",
    .is_line_if_set = true,
    .refusal = refuse_output_functor,
    .samples = [] {
      return std::vector<AttentionSpec>{{.output = output::sigmoid_gate()},
                                        {.output = output::sigmoid_gate(DType::fp16)},
                                        {.output = output::scale()},
                                        {.output = output::text({.name = "t", .body = "return value;"})}};
    }};

/// Why a family with these outputs cannot serve a spec; empty if it can.
std::string output_rejection(const AttentionSpec& spec, std::string_view family, FamilyOutputs outputs);
/// Why a family cannot serve a spec's output functor or 8-bit o, which need `applies`; empty if it can.
std::string output_functor_rejection(const AttentionSpec& spec, std::string_view family, bool applies);

}  // namespace jit
