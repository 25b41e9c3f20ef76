"""The functions of FlashMLA, computed by jit-attention: change the line that imports them.

    from jit_attention.flash_mla import flash_mla_with_kvcache  # was: from flash_mla import flash_mla_with_kvcache

Arguments have FlashMLA's names, order, defaults and meaning, and results its layouts: LSE is a natural logarithm, and +∞
where a query sees no key. Tensors are PyTorch's. Unlike FlashMLA it serves any number of heads, lists of any length,
16-bit caches with lists, and 8-bit caches without lists; docs/reference/frameworks.md lists the differences.
"""

from .decode import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata
from .prefill import flash_mla_sparse_fwd

__all__ = ["FlashMLASchedMeta", "flash_mla_sparse_fwd", "flash_mla_with_kvcache", "get_mla_metadata"]
