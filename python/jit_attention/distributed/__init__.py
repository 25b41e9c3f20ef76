"""Attention of one sequence over the ranks of a process group of PyTorch, forward and backward.

    pl = ja.distributed.balance(mask, seqlen=S, group=group)            # which rank has which positions
    q, k, v = (pl.shard(x, dim=1) for x in (q, k, v))                   # or tokens, once
    o = ja.distributed.attention(q, k, v, group=group, placement=pl, mask=mask)

`balance` and `predict` need no PyTorch.
"""

from typing import TYPE_CHECKING, Any

from .balance import balance
from .placement import Placement
from .predict import Prediction, predict

if TYPE_CHECKING:
    from .api import attention, check, reset, unshard
    from .context import context_parallel

#: Modules of the names that need PyTorch, whose import takes seconds.
_OF_TORCH = {"attention": "api", "check": "api", "reset": "api", "unshard": "api", "context_parallel": "context"}

__all__ = ["Placement", "Prediction", "attention", "balance", "check", "context_parallel", "predict", "reset", "unshard"]


def __getattr__(name: str) -> Any:
    if name not in _OF_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        import torch as _
    except ImportError as error:
        raise ImportError(f"jit_attention.distributed.{name} needs PyTorch: pip install torch") from error
    value = getattr(importlib.import_module(f"{__name__}.{_OF_TORCH[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
