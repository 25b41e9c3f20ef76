"""PyTorch: attention under `torch.compile`, as `scaled_dot_product_attention`, and in models of Transformers."""

try:
    import torch as _
except ImportError as error:
    raise ImportError("jit_attention.torch needs PyTorch: pip install torch") from error

from .flash_impl import register_with_torch
from .load_balancer import LoadBalancer
from .op import attention
from .quantized import quantized_attention
from .sdpa import scaled_dot_product_attention
from .transformers import register_with_transformers
from .transformers_paged import register_continuous_batching

__all__ = [
    "LoadBalancer",
    "attention",
    "quantized_attention",
    "register_continuous_batching",
    "register_with_torch",
    "register_with_transformers",
    "scaled_dot_product_attention",
]
