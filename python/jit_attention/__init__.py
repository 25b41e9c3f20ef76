"""Attention kernels that are generated, compiled and tuned for your problem and your GPU at run time.

    import jit_attention as ja

    o = ja.attention(q, k, v, mask=ja.mask.causal() & ja.mask.sliding_window(1024))

`attention` reads arrays of PyTorch, CuPy, JAX, NumPy and other frameworks without a copy. `prepare` compiles and
tunes ahead of the first call, and `compile` compiles without a GPU. A `Kernel` shows its source, PTX, SASS,
registers, spills, and how its config was chosen. Events (compiling, tuning, warnings) go to
``logging.getLogger("jit_attention")``. Settings come from the environment variables JIT_ATTENTION_*.
`jit_attention.torch` and `jit_attention.jax` work inside of ``torch.compile`` and ``jax.jit``, with gradients.

Examples in the documentation begin with::

    import jit_attention as ja, ml_dtypes, numpy as np

and run on a machine without a GPU if the environment variable JIT_ATTENTION_DEVICE is ``emulated:sm_90a``.
"""

import atexit as _atexit
import os as _os

from . import _keywords, cache, distributed, emulator, errors, mask, output, score, sparse
from ._core import (
    Attention,
    Device,
    ExchangeBuffer,
    Kernel,
    LaunchTrace,
    TileMap,
    __version__,
    _after_fork,
    _at_exit,
    append,
    attention,
    attention_backward,
    bits_of,
    candidate_configs,
    devices,
    exchange_fault,
    exchange_merge,
    exchange_merge_bytes,
    key_mass,
    merge,
    prepare,
    prepare_backward,
    score_blocks,
    score_keys,
    tile_map,
    top_k,
    trace,
    transpose_lists,
    tune,
    use_device,
    write_pack,
)
from ._core import compile as compile  # not in __all__, where it would hide Python's
from .block_mask import BlockMask, block_mask
from .errors import (
    CompileFailedError,
    DriverError,
    DriverUnavailableError,
    Error,
    InvalidArgumentError,
    InvalidSpecError,
    IoError,
    LaunchFailedError,
    LoadFailedError,
    NotPreparedError,
    NoValidConfigError,
    NvrtcUnavailableError,
    OfflineError,
    PeerTimeoutError,
    RankMismatchError,
    UnsupportedDeviceError,
)
from .functor import FunctorText
from .mask import Mask
from .output import OutputFunctor
from .quantize import QuantizedQkv, quantize_qkv
from .score import Score
from .spec import AttentionSpec, Refusal, refusals, supports
from .tree import Tree, TreePages, tree

__all__ = [
    "Attention",
    "AttentionSpec",
    "BlockMask",
    "Device",
    "ExchangeBuffer",
    "FunctorText",
    "Kernel",
    "LaunchTrace",
    "Mask",
    "OutputFunctor",
    "QuantizedQkv",
    "Refusal",
    "Score",
    "TileMap",
    "Tree",
    "TreePages",
    "append",
    "attention",
    "attention_backward",
    "bits_of",
    "block_mask",
    "cache",
    "candidate_configs",
    "devices",
    "distributed",
    "emulator",
    "errors",
    "exchange_fault",
    "exchange_merge",
    "exchange_merge_bytes",
    "mask",
    "key_mass",
    "merge",
    "output",
    "prepare",
    "prepare_backward",
    "quantize_qkv",
    "refusals",
    "score",
    "score_blocks",
    "score_keys",
    "sparse",
    "supports",
    "tile_map",
    "top_k",
    "transpose_lists",
    "trace",
    "tree",
    "tune",
    "use_device",
    "write_pack",
    "CompileFailedError",
    "DriverError",
    "DriverUnavailableError",
    "Error",
    "InvalidArgumentError",
    "InvalidSpecError",
    "IoError",
    "LaunchFailedError",
    "LoadFailedError",
    "NoValidConfigError",
    "NotPreparedError",
    "NvrtcUnavailableError",
    "OfflineError",
    "PeerTimeoutError",
    "RankMismatchError",
    "UnsupportedDeviceError",
]

setattr(trace, "__signature__", _keywords.signature_of(""))
_os.register_at_fork(after_in_child=_after_fork)
_atexit.register(_at_exit)
