"""All contenders, in the order of tables."""

from .chosen_peers import CuDnnBlocks, DeepGemm, FastVideo, Fla, FlashMlaSparse
from .cudnn_flex_peer import CuDnnFlex
from .ffpa_peers import Ffpa
from .flash_attention_peers import FlashAttention3, FlashAttention4, VllmFlashAttention3
from .flashinfer_peers import BatchAttention, FlashInfer, Pod, Xqa
from .fp8_peers import SageAttention
from .group_ours import Gather, Heads, Ring
from .group_packages import RingLlama3, RingZigzag, YunchangUlysses, YunchangZigzag
from .group_torch import TorchFlex, TorchRing, TorchRingCuDnn
from .ours import Bf16Cache, BlockMasks, BuiltIn, InterpolatedExponentials, JitAttention, MaskBits, TwoCalls
from .ours_rows import SeparateRows
from .torch_peers import CuDnn, FlashAttention2, Flex
from .vllm_peers import FlashMla, VllmInt4

CONTENDERS = (JitAttention, TwoCalls, InterpolatedExponentials, Bf16Cache, BuiltIn, BlockMasks, MaskBits,
              SeparateRows, CuDnn, CuDnnFlex,
              FlashAttention3, VllmFlashAttention3, FlashAttention4, Ffpa, FlashAttention2, FlashInfer, BatchAttention, Pod,
              Xqa, FlashMla, VllmInt4, Flex, SageAttention, FlashMlaSparse, DeepGemm, Fla, CuDnnBlocks, FastVideo,
              Gather, Heads, Ring, TorchRing, TorchRingCuDnn, TorchFlex, RingZigzag, RingLlama3, YunchangUlysses,
              YunchangZigzag)
NAMES = tuple(one.name for one in CONTENDERS)
COLORS = {one.name: one.color for one in CONTENDERS}


def all_contenders(tuning="first_run"):
    """One of each contender; `tuning`: how jit-attention chooses configs."""
    return [one(tuning) if issubclass(one, JitAttention) else one() for one in CONTENDERS]
