"""jit-attention as a kernel of the hub: `attention` of PyTorch tensors, and the functions of flash-attention.

The package lies beside this file. A process holds one version of it: an installed one of the same version is used, and
another version is an error.
"""

import importlib
import pathlib
import sys

_HERE = pathlib.Path(__file__).parent
_VERSION = (_HERE / "version.txt").read_text().strip()


def _package():
    if "jit_attention" not in sys.modules:
        sys.path.insert(0, str(_HERE / "package"))
        try:
            importlib.import_module("jit_attention")
        finally:
            sys.path.remove(str(_HERE / "package"))
    package = sys.modules["jit_attention"]
    if package.__version__ != _VERSION:
        raise ImportError(f"jit_attention {package.__version__} is loaded from {package.__path__[0]}, and this kernel is "
                          f"{_VERSION}: a process holds one version")
    return package


jit_attention = _package()

from jit_attention import BlockMask, block_mask, mask, score  # noqa: E402
from jit_attention.flash_attn import (  # noqa: E402
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from jit_attention.torch import attention, scaled_dot_product_attention  # noqa: E402

__all__ = [
    "BlockMask",
    "attention",
    "block_mask",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "jit_attention",
    "mask",
    "scaled_dot_product_attention",
    "score",
]
