"""Offsets that do not fit into 32 bits, and strides that others misread.

Strides reach far without touching the memory between, but a GPU must have it, some gigabytes. An emulated device would
copy it: there tests/device has places far apart, in C++.
"""

import numpy

from .case import case
from .interface import NotOffered, check_forward, check_gradients
from .problem import BF16, boundaries, dense, normal, paged

FAR = 2**31 + 4096  #: elements, a multiple of 8


def need_gpu(run):
    if not run.gpu:
        raise NotOffered("arrays of 4 GB and more are left to GPUs")


def apart(array, axis=0, stride=FAR):
    """A copy with `stride` elements between neighbors along an axis, and another number in each."""
    shape = list(array.shape)
    inner = [
        stride // array.itemsize
        for stride in numpy.empty(shape[:axis] + [1] + shape[axis + 1 :], array.dtype).strides
    ]
    inner[axis] = stride
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, inner))
    memory = numpy.empty(extent, array.dtype)  # pages that are not touched take no memory
    view = numpy.lib.stride_tricks.as_strided(memory, shape, [step * array.itemsize for step in inner])
    view[...] = array
    return view


@case(
    "Dao-AILab/flash-attention#2214 Dao-AILab/flash-attention#2259",
    "FlashAttention-2 and -4",
    "offsets of batch entries overflow 32 bits: illegal accesses, or other entries' rows",
    "outputs of two batch entries that lie 2³¹ elements apart equal double precision",
)
def check_batch_entries_far_apart(library, run):
    need_gpu(run)
    asked = dense(run.rng, batch=2, seqlen_q=run.pick(40, 300), causal=True)
    check_forward(library, asked.change(k=apart(asked.k), v=apart(asked.v)), asked.change(q=apart(asked.q)))


@case(
    "Dao-AILab/flash-attention#1500",
    "FlashAttention-2",
    "offsets of dq's sums overflow 32 bits in large batches",
    "gradients of entries 2³¹ elements apart, and of 16,640 entries of 2³¹ elements in all, equal double precision",
)
def check_gradients_of_large_batches(library, run):
    need_gpu(run)
    asked = dense(run.rng, batch=2, seqlen_q=40, gradients=True)
    check_gradients(library, asked.change(q=apart(asked.q), d_o=apart(asked.d_o)))
    # One entry that all others repeat: the results alone take memory.
    one = dense(run.rng, batch=1, seqlen_q=128, heads=8, head_dim=128, gradients=True)
    many = {
        name: numpy.broadcast_to(getattr(one, name), (16640, *one.q.shape[1:])) for name in ("q", "k", "v", "d_o")
    }
    check_gradients(library, one.change(**many, only=(0, 1, 16383, 16384, 16639)))


@case(
    "vllm-project/vllm#50427",
    "FlexAttention, in vLLM",
    "offsets of pages overflow 32 bits: wrong outputs, or a crash",
    "outputs over five pages that lie 2²⁹ elements apart equal double precision",
)
def check_pages_far_apart(library, run):
    need_gpu(run)
    asked = paged(run.rng, [1, 2], [40, 20], page_size=16, heads=4, heads_kv=2, causal=True, spare=0)
    check_forward(library, asked.change(k=apart(asked.k, stride=2**29 + 64), v=apart(asked.v, stride=2**29 + 64)))


@case(
    "ggml-org/llama.cpp#24912",
    "llama.cpp",
    "the stride of a mask between batch entries becomes a negative int",
    "outputs with a bias whose batch entries lie 2³¹ elements apart equal double precision",
)
def check_bias_of_large_strides(library, run):
    need_gpu(run)
    bias = normal(run.rng, 2, 1, 40, 48, dtype=BF16)
    check_forward(library, dense(run.rng, batch=2, seqlen_q=40, seqlen_kv=48, bias=apart(bias)))


@case(
    "pytorch/pytorch#145869",
    "FlexAttention",
    "captured biases of more than 2³¹ elements are read elsewhere",
    "outputs with a bias whose heads, and whose rows, lie 2³¹ elements in all apart equal double precision",
)
def check_bias_of_many_elements(library, run):
    need_gpu(run)
    bias = normal(run.rng, 1, 2, 40, 48).astype(numpy.float32)
    asked = dense(run.rng, seqlen_q=40, seqlen_kv=48)
    check_forward(library, asked.change(bias=apart(bias, axis=1)))
    check_forward(library, asked.change(bias=apart(bias[:, :1], axis=2, stride=FAR // 39 // 8 * 8 + 8)))


@case(
    "vllm-project/vllm#45500",
    "merge_attn_states, in vLLM",
    "token · heads · stride overflows 32 bits",
    "partial results whose tokens lie 2³⁰ elements apart are merged as double precision says",
)
def check_merge_of_far_tokens(library, run):
    need_gpu(run)
    outs = [normal(run.rng, 4, 2, 64) for _ in range(2)]
    lses = [normal(run.rng, 2, 4, dtype=numpy.float32) for _ in range(2)]
    o, _ = library.merge([apart(outs[0], stride=2**30), outs[1]], lses)
    share = 1 / (1 + numpy.exp(lses[1].astype(float) - lses[0]))
    share = share.T[..., None]
    right = share * outs[0].astype(float) + (1 - share) * outs[1].astype(float)
    assert numpy.abs(o - right).max() <= 0.02, f"merged rows are off by {numpy.abs(o - right).max():.3g}"


@case(
    "NVIDIA/cudnn-frontend#517",
    "cuDNN, in the review of an operator",
    "boundaries of varlen sequences times a row's stride overflow 32 bits",
    "outputs of varlen sequences whose rows lie 2²⁶ elements apart equal double precision",
)
def check_varlen_rows_far_apart(library, run):
    need_gpu(run)
    lengths = [3, 33]
    asked = dense(run.rng, seqlen_q=36)
    k, v = (apart(x[0], stride=2**26) for x in (asked.k, asked.v))
    check_forward(
        library,
        asked.change(
            q=asked.q[0], k=k, v=v, cu_seqlens_q=boundaries(lengths), causal=True, cu_seqlens_k=boundaries(lengths)
        ),
    )


@case(
    "ROCm/pytorch#3230 pytorch/pytorch#181133",
    "PyTorch on ROCm and MPS",
    "v that lies in another order than q and k is read as if it did not",
    "outputs of q, k and v of three different orders of memory equal double precision",
)
def check_orders_of_memory(library, run):
    asked = dense(run.rng, batch=2, seqlen_q=62, heads=4, head_dim=128)
    by_heads = lambda x: numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    by_rows = lambda x: numpy.ascontiguousarray(x.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)
    check_forward(library, asked.change(v=by_heads(asked.v)), asked.change(q=by_heads(asked.q), v=by_rows(asked.v)))


@case(
    "pytorch/pytorch#191937",
    "Memory-efficient attention, in PyTorch",
    "k and v that are one head for all, by a stride of 0, are wrong at 32 n + 1 keys beside a mask",
    "outputs of 33 and 97 keys of stride 0 between heads, with a mask, equal double precision",
)
def check_heads_of_stride_zero(library, run):
    for seqlen_kv in (33, 97):
        keep = run.rng.random((1, 1, 20, seqlen_kv)) < 0.7
        keep[..., 0] = True
        asked = dense(run.rng, seqlen_q=20, seqlen_kv=seqlen_kv, heads=4, heads_kv=1, head_dim=128, keep=keep)
        spread = lambda x: numpy.broadcast_to(x, (1, seqlen_kv, 4, 128))
        check_forward(library, asked.change(k=spread(asked.k), v=spread(asked.v)))
