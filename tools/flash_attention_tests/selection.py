"""Selection of FlashAttention-4's tests that apply to this library, with the reasons against the others."""

_INSIDE = "asks about kernels, layouts or caches of FlashAttention-4 itself"
_BITS = "wants the same bits of pages, or of one query, as of a whole prompt, which only split_keys gives here"
_MLA = "latent attention (qv, gathered keys), which the adapter refuses"

_LEFT_OUT = {
    "test_flash_attn_sm120_rejects_splitkv": _INSIDE,
    "test_flash_attn_cache_separates_broadcast_layouts": _INSIDE,
    "test_score_mod_aux_cache_separates_dtype_and_layout": _INSIDE,
    "test_flash_attn_invalid_head_dim": "wants FlashAttention-4's message; head dims of 4 and 148 are served here",
    "test_flash_attn_fp8_paged_decode_tile_boundary": "fp8 queries, which the adapter refuses",
    "test_flash_attn_fp8_paged_decode_preserves_tail_mass": "fp8 queries, which the adapter refuses",
    "test_flash_attn_paged_deepseek": _BITS,
    "test_flash_attn_ex2_emu_decode_prefill_consistency": _BITS,
    "test_flash_attn_mla_absorbed": _MLA,
    "test_flash_attn_mla_absorbed_varlen": _MLA,
    "test_flash_attn_mla_paged": _MLA,
    "test_flash_attn_mla_sparse_bwd_sentinel": _MLA,
    "test_flash_attn_mla_sparse_bwd_sentinel_varlen": _MLA,
    "test_flash_attn_varlen_seqlen_k_per_split": "seqlen_k_per_split, which the adapter refuses",
    "test_sm90_block_sparse_score_mod_backward_with_dq_swapab": "block_sparse_tensors, which the adapter refuses",
}


def reason_against(test, parameters):
    """Reason for skipping a test, or its case with these parameters; empty: it runs."""
    if test in _LEFT_OUT:
        return _LEFT_OUT[test]
    mode = parameters.get("cumsum_mode", "jit_cumsum")
    if test == "test_flash_attn_varlen_cumsum_metadata_paths" and mode != "jit_cumsum":
        return "looks into scheduler_metadata, which is not looked at here"
    return ""
