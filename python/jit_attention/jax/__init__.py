"""Attention inside of `jax.jit` and `jax.grad`: ``from jit_attention.jax import attention``."""

from . import block_mask as _block_mask  # noqa: F401  compiled functions take block masks
from .attention import attention

__all__ = ["attention"]
