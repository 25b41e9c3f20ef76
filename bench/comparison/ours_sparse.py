"""Sparse cells' masks for jit-attention: texts, and block masks made from them."""

from .timing import made_beforehand

POSITION = "const int p = q + seqlen_kv - seqlen_q;\n"
NEAR = "p - k <= window && k - p <= window"
GLOBAL = f"{NEAR} || k < global_tokens || p < global_tokens"
BODIES = {
    "causal": "return k <= p;",
    "window": "return k <= p && p - k <= window;",
    "prefix": "return k <= p || k < prefix;",
    "causal_window": f"return k <= p && {NEAR};",
    "document": "return ids[b * seqlen_kv + q] == ids[b * seqlen_kv + k];",
    "dilated": "return k <= p && p - k <= window && (p - k) % stride == 0;",
    "longformer": f"return {GLOBAL};",
    "bigbird": f"return {GLOBAL} || blocks[q / block * (seqlen_kv / block) + k / block] != 0;",
}
CONSTANTS = {"window": ("window",), "prefix": ("prefix",), "causal_window": ("window",),
             "dilated": ("window", "stride"), "longformer": ("window", "global_tokens"),
             "bigbird": ("window", "global_tokens", "block")}


def text_mask(cell, inputs):
    """(a SparseCell's mask as text, its tensors or None). Not for mask "blocks"."""
    import jit_attention as ja
    import torch

    kinds, tensors = {}, {}
    if cell.mask == "document":
        kinds, tensors = {"ids": "int32"}, {"ids": inputs.document_ids}
    elif cell.mask == "bigbird":
        kinds, tensors = {"blocks": "uint8"}, {"blocks": inputs.blocks[0].to(torch.uint8)}
    constants = {name: getattr(cell, name) for name in CONSTANTS.get(cell.mask, ())}
    mask = ja.mask.text(POSITION + BODIES[cell.mask], name=cell.mask, constants=constants, tensors=kinds)
    return mask, tensors or None


def block_mask(cell, inputs, scores=None):
    """(the block mask of a SparseCell's text, or of its blocks alone; a Runner's detail).

    `scores`: whether it stores partial blocks' mask bits; None: jit_attention decides.
    """
    import jit_attention as ja

    size = (cell.block, cell.block)
    if cell.mask == "blocks":
        make = lambda: ja.block_mask(inputs.q, inputs.k, blocks=inputs.blocks[None], block_size=size)
    else:
        mask, tensors = text_mask(cell, inputs)
        make = lambda: ja.block_mask(inputs.q, inputs.k, mask=mask, tensors=tensors, block_size=size, scores=scores)
    return made_beforehand(inputs.q.device, make)
