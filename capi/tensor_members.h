// Calls' tensors by name.
#pragma once

#include <jit/append.h>
#include <jit/attention.h>
#include <jit/c.h>

#include "capi/tensors.h"

namespace jit::c {

inline constexpr TensorMember<jit_forward_arguments, AttentionArguments> forward_members[] = {
    {"q", &jit_forward_arguments::q, &AttentionArguments::q},
    {"k", &jit_forward_arguments::k, &AttentionArguments::k},
    {"v", &jit_forward_arguments::v, &AttentionArguments::v},
    {"o", &jit_forward_arguments::o, &AttentionArguments::o},
    {"lse", &jit_forward_arguments::lse, &AttentionArguments::lse},
    {"cu_seqlens_q", &jit_forward_arguments::cu_seqlens_q, &AttentionArguments::cu_seqlens_q},
    {"cu_seqlens_k", &jit_forward_arguments::cu_seqlens_k, &AttentionArguments::cu_seqlens_k},
    {"seqused_q", &jit_forward_arguments::seqused_q, &AttentionArguments::seqused_q},
    {"seqused_k", &jit_forward_arguments::seqused_k, &AttentionArguments::seqused_k},
    {"cache_leftpad", &jit_forward_arguments::cache_leftpad, &AttentionArguments::cache_leftpad},
    {"page_table", &jit_forward_arguments::page_table, &AttentionArguments::page_table},
    {"sinks", &jit_forward_arguments::sinks, &AttentionArguments::sinks},
    {"q_descale", &jit_forward_arguments::q_descale, &AttentionArguments::q_descale},
    {"k_descale", &jit_forward_arguments::k_descale, &AttentionArguments::k_descale},
    {"v_descale", &jit_forward_arguments::v_descale, &AttentionArguments::v_descale},
    {"v_mean", &jit_forward_arguments::v_mean, &AttentionArguments::v_mean},
    {"lse_shift", &jit_forward_arguments::lse_shift, &AttentionArguments::lse_shift},
    {"rng_state", &jit_forward_arguments::rng_state, &AttentionArguments::rng_state},
    {"k_block_scales", &jit_forward_arguments::k_block_scales, &AttentionArguments::k_block_scales},
    {"v_block_scales", &jit_forward_arguments::v_block_scales, &AttentionArguments::v_block_scales},
    {"max_logit", &jit_forward_arguments::max_logit, &AttentionArguments::max_logit},
    {"row_max", &jit_forward_arguments::row_max, &AttentionArguments::row_max},
    {"o_raw", &jit_forward_arguments::o_raw, &AttentionArguments::o_raw},
    {"mean_score", &jit_forward_arguments::mean_score, &AttentionArguments::mean_score},
    {"o_descale", &jit_forward_arguments::o_descale, &AttentionArguments::o_descale},
    {"running_lse", &jit_forward_arguments::running_lse, &AttentionArguments::running_lse},
};

inline constexpr TensorMember<jit_backward_arguments, BackwardArguments> backward_members[] = {
    {"do", &jit_backward_arguments::d_o, &BackwardArguments::d_o},
    {"q", &jit_backward_arguments::q, &BackwardArguments::q},
    {"k", &jit_backward_arguments::k, &BackwardArguments::k},
    {"v", &jit_backward_arguments::v, &BackwardArguments::v},
    {"o", &jit_backward_arguments::o, &BackwardArguments::o},
    {"lse", &jit_backward_arguments::lse, &BackwardArguments::lse},
    {"dq", &jit_backward_arguments::dq, &BackwardArguments::dq},
    {"dk", &jit_backward_arguments::dk, &BackwardArguments::dk},
    {"dv", &jit_backward_arguments::dv, &BackwardArguments::dv},
    {"cu_seqlens_q", &jit_backward_arguments::cu_seqlens_q, &BackwardArguments::cu_seqlens_q},
    {"cu_seqlens_k", &jit_backward_arguments::cu_seqlens_k, &BackwardArguments::cu_seqlens_k},
    {"seqused_q", &jit_backward_arguments::seqused_q, &BackwardArguments::seqused_q},
    {"seqused_k", &jit_backward_arguments::seqused_k, &BackwardArguments::seqused_k},
    {"rng_state", &jit_backward_arguments::rng_state, &BackwardArguments::rng_state},
    {"dlse", &jit_backward_arguments::d_lse, &BackwardArguments::d_lse},
    {"sinks", &jit_backward_arguments::sinks, &BackwardArguments::sinks},
    {"d_sinks", &jit_backward_arguments::d_sinks, &BackwardArguments::d_sinks},
    {"mean_score", &jit_backward_arguments::mean_score, &BackwardArguments::mean_score},
    {"d_mean_score", &jit_backward_arguments::d_mean_score, &BackwardArguments::d_mean_score},
};

inline constexpr TensorMember<jit_append_arguments, AppendArguments> append_members[] = {
    {"k", &jit_append_arguments::k, &AppendArguments::k},
    {"v", &jit_append_arguments::v, &AppendArguments::v},
    {"k_cache", &jit_append_arguments::k_cache, &AppendArguments::k_cache},
    {"v_cache", &jit_append_arguments::v_cache, &AppendArguments::v_cache},
    {"slot_mapping", &jit_append_arguments::slot_mapping, &AppendArguments::slot_mapping},
    {"seqused_k", &jit_append_arguments::seqused_k, &AppendArguments::seqused_k},
    {"cu_seqlens_q", &jit_append_arguments::cu_seqlens_q, &AppendArguments::cu_seqlens_q},
    {"page_table", &jit_append_arguments::page_table, &AppendArguments::page_table},
    {"q", &jit_append_arguments::q, &AppendArguments::q},
    {"q_out", &jit_append_arguments::q_out, &AppendArguments::q_out},
    {"cos_sin", &jit_append_arguments::cos_sin, &AppendArguments::cos_sin},
    {"cos", &jit_append_arguments::cos, &AppendArguments::cos},
    {"sin", &jit_append_arguments::sin, &AppendArguments::sin},
    {"positions", &jit_append_arguments::positions, &AppendArguments::positions},
    {"q_norm_weight", &jit_append_arguments::q_norm_weight, &AppendArguments::q_norm_weight},
    {"k_norm_weight", &jit_append_arguments::k_norm_weight, &AppendArguments::k_norm_weight},
    {"k_scale", &jit_append_arguments::k_scale, &AppendArguments::k_scale},
    {"v_scale", &jit_append_arguments::v_scale, &AppendArguments::v_scale},
    {"k_block_scales", &jit_append_arguments::k_block_scales, &AppendArguments::k_block_scales},
    {"v_block_scales", &jit_append_arguments::v_block_scales, &AppendArguments::v_block_scales},
};

}  // namespace jit::c
