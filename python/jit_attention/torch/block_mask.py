"""Block masks of calls as tensors and plain values, which operators take."""

from __future__ import annotations

from .._mask_words import differs_by_entry, differs_by_head
from ..block_mask import BlockMask
from ..block_mask.arguments import LENGTHS, wanted_mask
from ..block_mask.calls import check_beside
from ..block_mask.from_lists import made_of_torchs_lists
from ..block_mask.making import mask_over

#: Lists of PyTorch's BlockMask: their names in the operator, and in `BlockMask.from_lists`.
_LISTS = {
    "kv_num_blocks": "counts",
    "kv_indices": "indices",
    "full_kv_num_blocks": "full_counts",
    "full_kv_indices": "full_indices",
}

#: Marks a table that serves all batch entries, or all heads.
_ANY = -1


def written_down(block_mask, mask, tensors):
    """A call's mask restricted to its blocks, its tensors, and numbers: the arguments of `read_back`.

    `block_mask` is a `jit_attention.BlockMask`, PyTorch's own, or None. Raises as `jit_attention.attention` does when
    it was made with another mask or tensor. Numbers may be symbolic under a compiler.
    """
    if block_mask is None:
        return mask, tensors, None
    if isinstance(block_mask, BlockMask):
        check_beside(block_mask, mask, tensors)
        tensors = {**block_mask.tensors, **block_mask.read, **tensors}
        for_all = (_ANY if size is None else size for size in (block_mask.batch, block_mask.heads))
        return block_mask.within, tensors, [*block_mask.block_size, block_mask.seqlen_q, block_mask.seqlen_k, *for_all,
                                            *(int(name in block_mask.lengths) for name in LENGTHS),
                                            _kind_of(block_mask.scores)]
    _wanted_torchs(block_mask)
    lists = {f"block_mask.{name}": getattr(block_mask, name) for name in _LISTS}
    tensors = {**tensors, **{name: given for name, given in lists.items() if given is not None}}
    return mask, tensors, [*block_mask.BLOCK_SIZE, *block_mask.seq_lengths]


def read_back(numbers, mask, tensors, q, layout):
    """The `jit_attention.BlockMask` encoded by `written_down`, or None, and the mask's tensors."""
    if numbers is None:
        return None, tensors
    block_size, (seqlen_q, seqlen_k), of_table = tuple(numbers[:2]), numbers[2:4], numbers[4:]
    if of_table:
        batch, heads = (None if size == _ANY else size for size in of_table[:2])
        *has_lengths, kind = of_table[2:]
        within, scores = wanted_mask(mask), _scores_of(kind)
        over = mask_over(*block_size, within, scores)
        given = BlockMask(table=tensors["block_mask"], block_size=block_size, seqlen_q=seqlen_q, seqlen_k=seqlen_k,
                          batch=batch, heads=heads, within=within, mask=over, tensors=_read_by(over, tensors),
                          scores=scores, read=_read_by(within, tensors),
                          lengths={name: None for name, has in zip(LENGTHS, has_lengths, strict=True) if has})
        return given, tensors
    lists = {keyword: tensors.get(f"block_mask.{name}") for name, keyword in _LISTS.items()}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("block_mask.")}
    fields = made_of_torchs_lists(lists, mask, seqlen_q=seqlen_q, seqlen_k=seqlen_k, block_size=block_size,
                                  tensors=tensors, scores=False, **_sizes_if_differing(mask, q, layout))
    return BlockMask(**fields), tensors


def for_eager_call(block_mask, mask, tensors, q, layout):
    """`block_mask` converted for `jit_attention.attention`."""
    if block_mask is None or isinstance(block_mask, BlockMask):
        return block_mask
    _wanted_torchs(block_mask)
    # The table serves a single call, which evaluates the mask no more often than building the table with scores would.
    return BlockMask.from_torch(block_mask, mask, tensors, scores=False, **_sizes_if_differing(mask, q, layout))


def _read_by(mask, tensors):
    return {name: tensors[name] for name in mask.tensors if name in tensors}


def _kind_of(scores):
    """A code for whether the scores of no, all or some blocks are stored. Calls ignore the count."""
    return int(scores) if isinstance(scores, bool) else 2


def _scores_of(kind):
    return bool(kind) if kind < 2 else kind


def _sizes_if_differing(mask, q, layout):
    """Batch and heads of a call whose mask differs between them; lists may be shared."""
    within = wanted_mask(mask)
    heads = q.shape[1 if layout == "BHSD" and q.dim() == 4 else -2]
    return {"batch": q.shape[0] if differs_by_entry(within) else None,
            "heads_q": heads if differs_by_head(within) else None}


def _wanted_torchs(block_mask):
    if not hasattr(block_mask, "kv_num_blocks"):
        raise TypeError("block_mask must be a jit_attention.BlockMask, a torch.nn.attention.flex_attention.BlockMask, "
                        f"or None, not a {type(block_mask).__name__}")
