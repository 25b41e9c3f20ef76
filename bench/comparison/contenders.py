"""All contenders, in the order of tables."""

from .ours import JitAttention
from .package_peers import FlashAttention3, FlashAttention4, FlashInfer
from .torch_peers import CuDnn, FlashAttention2, Flex

CONTENDERS = (JitAttention, CuDnn, FlashAttention3, FlashAttention4, FlashAttention2, FlashInfer, Flex)
NAMES = tuple(one.name for one in CONTENDERS)
COLORS = {one.name: one.color for one in CONTENDERS}


def all_contenders(tuning="first_run"):
    """One of each; `tuning` is how jit-attention chooses its configs."""
    return [one(tuning) if one is JitAttention else one() for one in CONTENDERS]
