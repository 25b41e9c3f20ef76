"""Attention to keys that were chosen: a list of tokens, or of blocks of keys, for each query, or block of queries.

    o = ja.sparse.dsa(q, latents, indices, page_table=pages, seqused_k=lengths, cu_seqlens_q=starts)
    o = ja.sparse.scopes(q, ja.sparse.Scope(window_pages, window), ja.sparse.Scope(latent_pages, indices, counts))
    o = ja.sparse.block_top_k(q, k, v, blocks, block=128, mask=ja.mask.causal(), page_table=pages, …)
    o = ja.sparse.video(q, k, v, blocks, valid_rows=valid)
    o = ja.sparse.nsa(q, k, v, k_compressed, v_compressed, gates)
    loss = ja.sparse.indexer_loss(q_index, k_index, weights, indices, ja.sparse.list_mass(q, latents, lse, indices))

Each is a thin layer over a spec with `list_block`, or over a block mask. Lists are int32 arrays on the device of the
queries. Only the device reads them: calls do not wait for it, and can be captured. Entries may have any order; −1,
and every entry that names no key, is skipped.
"""

from .dsa import dsa
from .indexer import choose_keys, indexer_loss, list_mass
from .lists import block_top_k, union
from .nsa import nsa
from .scopes import Scope, scopes
from .video import video, video_mask

__all__ = ["Scope", "block_top_k", "choose_keys", "dsa", "indexer_loss", "list_mass", "nsa", "scopes", "union", "video", "video_mask"]
