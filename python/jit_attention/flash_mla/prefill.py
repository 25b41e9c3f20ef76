"""FlashMLA's attention of queries to selected latents of one tensor."""

from __future__ import annotations

import torch

from ..sparse import dsa
from .results import check_sink, finish, refuse, refuse_gradients, strided


def flash_mla_sparse_fwd(
    q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, sm_scale: float, d_v: int = 512,
    attn_sink: torch.Tensor | None = None, topk_length: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computes attention of each query to the latents on its list.

    Args:
        q: (s_q, h_q, d_qk), bf16 or fp16.
        kv: (s_kv, 1, d_qk), of q's type.
        indices: int32 (s_q, 1, topk): rows of kv. Others, such as −1 or s_kv, are skipped.
        sm_scale: Factor of q · k.
        d_v: Columns of the values, the first ones of kv.
        attn_sink: fp32 (h_q): out is multiplied by exp(lse) / (exp(lse) + exp(attn_sink)). ±∞ are as they say.
        topk_length: int32 (s_q): how many entries of a list count. None: all.

    Returns:
        (out, max_logits, lse): (s_q, h_q, d_v) of q's type; fp32 (s_q, h_q), the largest scaled score, −∞ without keys; and
        the natural logarithm of Σ exp of scores, without the sink, +∞ without keys.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: No kernel serves the problem, such as on another architecture than sm_90a.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> from jit_attention.flash_mla import flash_mla_sparse_fwd
        >>> q, kv = torch.ones(2, 64, 576, dtype=torch.bfloat16), torch.ones(100, 1, 576, dtype=torch.bfloat16)
        >>> out, max_logits, lse = flash_mla_sparse_fwd(q, kv, torch.tensor([[[3, 99]], [[5, -1]]]).int(), 0.1)
        >>> out.shape, lse.shape
        (torch.Size([2, 64, 512]), torch.Size([2, 64]))
    """
    refuse_gradients(q, kv, attn_sink)
    if q.dim() != 3 or kv.dim() != 3 or indices.dim() != 3:
        refuse("q" if q.dim() != 3 else "kv" if kv.dim() != 3 else "indices", "must have 3 dimensions")
    tokens, heads = q.shape[:2]
    check_sink(attn_sink, heads)
    lse = q.new_empty(tokens, heads, dtype=torch.float32)
    max_logits = torch.full_like(lse, -torch.inf)
    out, _, _ = dsa(strided(q), strided(kv), strided(indices), None if topk_length is None else topk_length[:, None],
                    head_dim_v=d_v, softmax_scale=sm_scale, return_lse=lse.t(), return_aux={"row_max": max_logits.t()})
    out, lse = finish(out, lse, attn_sink, q.dtype)
    return out, max_logits, lse
