"""Attention kernels that are written, compiled and tuned for your problem and your GPU while the program runs.

    import jit_attention as ja

    o = ja.attention(q, k, v, mask=ja.mask.causal() & ja.mask.sliding_window(1024))

`attention` takes arrays of PyTorch, CuPy, JAX, NumPy and others, without a copy. `prepare` compiles and tunes ahead,
`compile` needs no GPU, and a `Kernel` can be read: source, PTX, SASS, registers, spills, why this config. Events
(compiling, tuning, warnings) go to ``logging.getLogger("jit_attention")``; settings come from the environment
variables JIT_ATTENTION_*. `jit_attention.torch` has what PyTorch and transformers want.
"""

import atexit as _atexit
import copyreg as _copyreg
import os as _os

from . import cache, errors, mask, score
from ._core import (
    Attention,
    Device,
    Kernel,
    LaunchTrace,
    TileMap,
    __version__,
    _after_fork,
    _at_exit,
    append,
    attention,
    attention_backward,
    candidate_configs,
    compile,
    devices,
    merge,
    prepare,
    prepare_backward,
    tile_map,
    trace,
    tune,
    use_device,
    write_pack,
)
from .block_mask import BlockMask, block_mask
from .errors import *  # noqa: F403
from .errors import Error
from .functor import FunctorText
from .mask import Mask
from .quantize import QuantizedQkv, quantize_qkv
from .score import Score
from .spec import AttentionSpec, Refusal, refusals, supports

__all__ = [
    "Attention",
    "AttentionSpec",
    "BlockMask",
    "Device",
    "FunctorText",
    "Kernel",
    "LaunchTrace",
    "Mask",
    "QuantizedQkv",
    "Refusal",
    "Score",
    "TileMap",
    "append",
    "attention",
    "attention_backward",
    "block_mask",
    "cache",
    "candidate_configs",
    "devices",
    "errors",
    "mask",
    "merge",
    "prepare",
    "prepare_backward",
    "quantize_qkv",
    "refusals",
    "score",
    "supports",
    "tile_map",
    "trace",
    "tune",
    "use_device",
    "write_pack",
    *sorted(kind.__name__ for kind in (Error, *Error.__subclasses__())),
]

# Functions of an extension are no Python functions, and pickle knows those only.
_copyreg.pickle(type(attention), lambda function: function.__name__)
_os.register_at_fork(after_in_child=_after_fork)
_atexit.register(_at_exit)
