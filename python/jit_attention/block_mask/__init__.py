"""Block masks: the blocks of scores that a mask keeps, computed once on the device for any number of calls.

    bm = block_mask(q, k, mask=segments, tensors={"segment": ids})
    o, lse = attention(q, k, v, block_mask=bm, return_lse=True)
    dq, dk, dv = attention_backward(do, q, k, v, o, lse, block_mask=bm)

They serve masks whose empty tiles cannot be derived from positions alone, and blocks that the caller chooses.
"""

from .function import block_mask
from .table import BlockMask

__all__ = ["BlockMask", "block_mask"]
