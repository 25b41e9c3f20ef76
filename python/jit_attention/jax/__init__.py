"""Attention inside of `jax.jit` and `jax.grad`: ``from jit_attention.jax import attention``."""

from .attention import attention

__all__ = ["attention"]
