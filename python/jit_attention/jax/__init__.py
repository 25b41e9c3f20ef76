"""Attention inside of `jax.jit` and `jax.grad`: ``from jit_attention.jax import attention``; and to lists of keys."""

from . import block_mask as _block_mask  # noqa: F401  compiled functions take block masks
from .attention import attention
from .lists import block_top_k

__all__ = ["attention", "block_top_k"]
