"""Bits that differed from run to run, or with what else was in the batch."""

import numpy

from .case import case
from .exact import compare
from .problem import boundaries, dense, int32, paged


def alone(asked, b):
    """Sequence b of a paged problem, by itself."""
    begin, end = asked.cu_seqlens_q[b], asked.cu_seqlens_q[b + 1]
    return asked.change(
        q=asked.q[begin:end],
        cu_seqlens_q=int32([0, end - begin]),
        seqused_k=asked.seqused_k[b : b + 1],
        page_table=asked.page_table[b : b + 1],
    )


def rows(asked, outcome, b):
    return outcome.o[asked.cu_seqlens_q[b] : asked.cu_seqlens_q[b + 1]]


def check_invariant(library, asked):
    """Each sequence of a batch has the bits that it has alone."""
    whole = library.forward(asked)
    compare(asked, whole)
    for b in range(len(asked.seqused_k)):
        same = rows(asked, whole, b) == library.forward(alone(asked, b)).o
        assert same.all(), f"sequence {b} differs from itself alone in {int((~same).sum())} elements"


@case(
    "vllm-project/vllm#51902",
    "FlashAttention-3, in vLLM",
    "with num_splits=1 a decoding row changes when a neighbor's prefill grows from 9 to 10 tokens, as the tile does",
    "a row is bit-identical alone, beside 9 and beside 10 tokens, in batch-invariant mode",
)
def check_neighbor_grows(library, run):
    keys = run.pick(300, 4000)
    first = paged(run.rng, [1, 10], [keys, 60], heads=14, heads_kv=2, causal=True, batch_invariant=True)
    fewer = first.change(q=first.q[:10], cu_seqlens_q=boundaries([1, 9]), seqused_k=int32([keys, 59]))
    check_invariant(library, first)
    same = rows(first, library.forward(first), 0) == rows(fewer, library.forward(fewer), 0)
    assert same.all(), f"{int((~same).sum())} elements change with the neighbor"


@case(
    "vllm-project/flash-attention#169 vllm-project/vllm#47069",
    "FlashAttention-3",
    "with num_splits=1 the kernel and its tile change with causal, which is dropped where all requests decode",
    "a decoding row is bit-identical alone and beside a prefill of 129 tokens, in batch-invariant mode",
)
def check_decoding_beside_prefill(library, run):
    check_invariant(
        library,
        paged(run.rng, [1, run.pick(70, 129)], run.pick([200, 90], [2000, 900]), causal=True, batch_invariant=True),
    )


@case(
    "Dao-AILab/flash-attention#2450 Dao-AILab/flash-attention#1897",
    "FlashAttention-3",
    "where keys are split, the borders of a sequence's splits depend on the lengths of the others",
    "each of four decoding requests has the bits that it has alone, in batch-invariant mode",
)
def check_splits_of_neighbors(library, run):
    check_invariant(
        library,
        paged(
            run.rng, [1] * 4, run.pick([40, 700, 129, 64], [40, 7000, 1290, 64]), causal=True, batch_invariant=True
        ),
    )


@case(
    "Dao-AILab/flash-attention#2604",
    "FlashAttention-4",
    "a token decoded later has other bits than in prefill, for splits depend on the length",
    "the last queries of a prefill are bit-identical when they are computed one by one, in batch-invariant mode",
)
def check_prefill_and_decoding(library, run):
    keys = run.pick(150, 1500)
    asked = paged(run.rng, [20], [keys], causal=True, batch_invariant=True)
    outcome = library.forward(asked)
    compare(asked, outcome)
    whole = outcome.o
    for last in (0, 7, 19):
        one = asked.change(
            q=asked.q[last : last + 1], cu_seqlens_q=int32([0, 1]), seqused_k=int32([keys - 19 + last])
        )
        same = library.forward(one).o[0] == whole[last]
        assert same.all(), f"query {last} differs in {int((~same).sum())} elements"


@case(
    "deepseek-ai/FlashMLA#212",
    "FlashMLA",
    "a row of sparse decoding depends on its batchmates in the last bits",
    "a row of latent attention (values are columns of keys) is bit-identical alone and in a batch, batch-invariant",
)
def check_latent_rows_alone(library, run):
    asked = paged(
        run.rng,
        [1, 1, 2],
        run.pick([90, 40, 130], [900, 400, 1300]),
        page_size=64,
        heads=16,
        heads_kv=1,
        head_dim=576,
        causal=True,
        batch_invariant=True,
        head_dim_v=512,
    )
    check_invariant(library, asked.change(v=None))


@case(
    "Dao-AILab/flash-attention#1596 Dao-AILab/flash-attention#1766",
    "FlashAttention-3",
    "deterministic=True is taken and dropped on the way to the kernel",
    "deterministic gradients of many tiles are equal to the bit in 4 runs, on a GPU in 20",
)
def check_deterministic_gradients(library, run):
    asked = dense(
        run.rng, seqlen_q=run.pick(200, 3000), heads=2, head_dim=128, gradients=True, causal=True, deterministic=True
    )
    _repeat(library, asked, run.pick(4, 20))


@case(
    "Dao-AILab/flash-attention#2510",
    "FlashAttention-4",
    "deterministic dk and dv differ where heads share keys",
    "deterministic gradients with 4 query heads to a KV head are equal to the bit in 4 runs, on a GPU in 20",
)
def check_deterministic_grouped_gradients(library, run):
    asked = dense(run.rng, seqlen_q=run.pick(150, 2000), heads=8, heads_kv=2, gradients=True, deterministic=True)
    _repeat(library, asked, run.pick(4, 20))


def _repeat(library, asked, count):
    first = library.gradients(asked)
    compare(asked, first)
    for _ in range(count - 1):
        again = library.gradients(asked)
        for name in ("dq", "dk", "dv"):
            differ = int((getattr(first, name) != getattr(again, name)).sum())
            assert not differ, f"{name} differs in {differ} elements from run to run"


@case(
    "Dao-AILab/flash-attention#1678",
    "FlashAttention-3",
    "semaphores begin with what other calls left in memory, and have the sizes of another shape",
    "deterministic gradients of three sizes in turns come out as the first time, and equal double precision",
)
def check_sizes_in_turns(library, run):
    problems = [
        dense(run.rng, batch=batch, seqlen_q=seqlen, heads=4, heads_kv=2, gradients=True, deterministic=True)
        for batch, seqlen in ((1, run.pick(150, 1500)), (3, 40), (1, 20))
    ]
    first = [library.gradients(asked) for asked in problems]
    for asked, outcome in zip(problems, first):
        compare(asked, outcome)
    for _ in range(2):
        for asked, outcome in reversed(list(zip(problems, first))):
            assert numpy.array_equal(library.gradients(asked).dq, outcome.dq), "dq changes with what came before"


@case(
    "flashinfer-ai/flashinfer#1046",
    "FlashInfer",
    "NaN that an unrelated operation left behind comes out of a later prefill: a wait was missing",
    "a call after calls on NaN comes out with the bits that it had before",
)
def check_after_calls_on_nan(library, run):
    lengths = run.pick([33, 44, 23], [33, 44, 11, 1100, 12])
    asked = paged(run.rng, lengths, [n + 40 for n in lengths], causal=True)
    before = library.forward(asked)
    compare(asked, before)
    poison = asked.change(
        q=numpy.full_like(asked.q, numpy.nan),
        k=numpy.full_like(asked.k, numpy.nan),
        v=numpy.full_like(asked.v, numpy.nan),
    )
    for _ in range(3):
        library.forward(poison)
    assert numpy.array_equal(library.forward(asked).o, before.o), "bits differ after calls on NaN"
