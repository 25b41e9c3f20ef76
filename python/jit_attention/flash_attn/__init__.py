"""The functions of flash-attention 2, computed by jit-attention: change the line that imports them.

    from jit_attention.flash_attn import flash_attn_func  # was: from flash_attn import flash_attn_func

Arguments have flash-attention's names, order, defaults and meaning. `v3` has those of FlashAttention-3
(``flash_attn_interface``), `v4` those of FlashAttention-4 (``flash_attn.cute``), which differ in order. Unsupported
arguments are refused with one sentence; docs/flash_attention.md has a table of all arguments.

Tensors of PyTorch get gradients and may be compiled. Arrays of NumPy and others do as well, without gradients and
dropout.
"""

from .combine import flash_attn_combine
from .dense import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from .kvcache import flash_attn_with_kvcache
from .varlen import flash_attn_varlen_func, flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
