"""jit-attention over several GPUs: its methods, and one GPU as their baseline."""

import dataclasses

from .contender import Contender, import_failure, missing
from .group_shards import Shards

DEFAULT_MODES = {"causal": "zigzag"}  # balanced and equally many rows; others by balance's own mode


class OursOverRanks:
    """The method of a Contender for these problems."""

    method = "arrive"  # where GPUs do not reach each other's memory, its keys are gathered

    def spread(self, cell, rank):
        return ours(cell, rank, self.method, DEFAULT_MODES.get(cell.mask, "balanced"))


class _OtherMethod(OursOverRanks, Contender):
    """jit-attention by a method that other libraries use, with its own kernels."""

    def absent(self):
        return missing("jit_attention") or import_failure("jit_attention")

    def version(self):
        import jit_attention

        return jit_attention.__version__


class Gather(_OtherMethod):
    name, label, color, method = "ours_gather", "jit-attention, gather", "#e8907c", "gather"


class Heads(_OtherMethod):
    name, label, color, method = "ours_heads", "jit-attention, heads (Ulysses)", "#9c2f22", "heads"


class Ring(_OtherMethod):
    name, label, color, method = "ours_ring", "jit-attention, ring", "#f3c9a5", "ring"


def mask_of(cell):
    """The mask of a call over ranks; packed sequences are the placement's."""
    import jit_attention as ja

    if cell.mask == "window":
        return ja.mask.sliding_window(cell.window, 0)
    return None if cell.mask == "none" else ja.mask.causal()


def kernels(forward, backward, gradients):
    """A call of only the kernels."""
    import torch

    def call():
        with torch.no_grad():
            o, lse = forward()
            if gradients:
                backward(o, lse)

    return call


def ours(cell, rank, method, mode):
    """The Shards of a method, with a placement of a mode."""
    import jit_attention as ja
    from jit_attention.distributed import problem as problems
    from jit_attention.distributed.groups import control_of

    mask = mask_of(cell)
    placement = ja.distributed.balance(mask, seqlen=cell.seqlen_q, group=rank.group, documents=cell.documents_of_call, mode=mode,
                                       granule=cell.granule)
    q, k, v, do = rank.inputs(cell)
    tensors, own_do = [placement.shard(x, 1) for x in (q, k, v)], placement.shard(do, 1)

    def forward(q, k, v):
        return ja.distributed.attention(q, k, v, placement=placement, mask=mask, method=method, deterministic=cell.deterministic)

    def whole(x):
        return ja.distributed.unshard(x, 1, placement=placement)

    problem = problems.Problem(*tensors, control_of(rank.group), placement, mask, deterministic=cell.deterministic)
    if method == "heads":
        of_mask = problems.mask_of_call(problem)
        each, each_kv = cell.heads_q // rank.size, cell.heads_kv // rank.size
        own = slice(rank.rank * each, (rank.rank + 1) * each), slice(rank.rank * each_kv, (rank.rank + 1) * each_kv)
        q, do = (x[:, :, own[0]].contiguous() for x in (q, do))
        k, v = (x[:, :, own[1]].contiguous() for x in (k, v))
        local = kernels(lambda: ja.attention(q, k, v, return_lse=True, **of_mask),
                        lambda o, lse: ja.attention_backward(do, q, k, v, o, lse, **of_mask), cell.gradients)
    else:  # the method's own kernels, over all keys at once
        local = kernels(lambda: problems.forward(problem, k, v),
                        lambda o, lse: problems.backward(problem, k, v, own_do, o, lse, None, (), False), cell.gradients)
    return Shards(forward, tensors, own_do, whole, local=local, placement=placement)


@dataclasses.dataclass
class OneGpu:
    """Calls of one GPU on the whole sequence: with the problem's mask, and with none; o, and gradients if they count."""

    masked: object
    full: object
    expected: list


def one_gpu(cell, rank):
    """Baselines, which every rank measures at the same time, so that clocks are those of busy GPUs."""
    import jit_attention as ja
    import jit_attention.torch as jt
    import torch
    from jit_attention.distributed import problem as problems

    q, k, v, do = rank.inputs(cell)
    mask = mask_of(cell)
    alone = ja.distributed.balance(mask, seqlen=cell.seqlen_q, ranks=1, documents=cell.documents_of_call)
    of_mask = problems.mask_of_call(problems.Problem(q, k, v, None, alone, mask))
    shards = {name: Shards(lambda q, k, v, options=options: jt.attention(q, k, v, **options), [q, k, v], do, None)
              for name, options in (("masked", of_mask), ("full", {}))}
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o = jt.attention(*leaves, **of_mask)
    expected = [o.detach(), *(torch.autograd.grad(o, leaves, do) if cell.gradients else ())]
    return OneGpu(**{name: one.call(cell.gradients) for name, one in shards.items()}, expected=expected)
