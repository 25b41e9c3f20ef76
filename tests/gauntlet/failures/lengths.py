"""Lengths, pages and padding: rows that were not written, and rows that were read though nobody has them."""

import numpy

from .case import case
from .exact import compare, sequences, solve
from .interface import check_forward
from .problem import BF16, boundaries, dense, int32, normal, paged, varlen


@case(
    "pytorch/pytorch#194167 Dao-AILab/flash-attention#2550",
    "FlashAttention-2, in PyTorch",
    "paged sequences with split keys write no row but those of the first sequence",
    "a result over NaN has no NaN left, and equals double precision, with 1, 2 and 5 splits",
)
def check_paged_rows_with_splits(library, run):
    lengths = run.pick([300, 300], [1024, 1024, 1024])
    for splits in (1, 2, 5):
        check_forward(
            library,
            paged(
                run.rng, [1] * len(lengths), lengths, page_size=256, num_splits=splits, causal=True, unwritten=True
            ),
        )


@case(
    "pytorch/torchtitan#3235",
    "FlashAttention-2, in PyTorch",
    "NaN in about one of a hundred decoding steps over pages where the number of splits is chosen automatically",
    "decoding steps over growing caches equal double precision, none with NaN",
)
def check_decoding_steps_over_pages(library, run):
    steps = run.pick((1, 63, 64, 65, 257), (1, 63, 64, 65, 257, 1000, 1024, 1025, 2049, 4095, 4097))
    for first in steps:
        check_forward(library, paged(run.rng, [1, 1], [first, first + 40], page_size=64, causal=True))


@case(
    "flashinfer-ai/flashinfer#941 vllm-project/vllm#53856",
    "FlashInfer MLA, vLLM on ROCm",
    "what lies behind the last key in its page reaches the output: NaN of it makes all NaN",
    "outputs over pages whose unused rows are NaN equal double precision",
)
def check_unused_rows_of_pages(library, run):
    check_forward(
        library, paged(run.rng, [1, 5, 1], run.pick([13, 77, 130], [13, 777, 2030]), filler=numpy.nan, causal=True)
    )


@case(
    "vllm-project/vllm#42494 vllm-project/vllm#57156",
    "FlashAttention-2, FlashInfer, in vLLM",
    "stale entries of the page table behind those in use are read, and what is in their pages counts",
    "outputs equal double precision where such entries name pages of NaN, pages of others, and no page at all",
)
def check_stale_entries_of_page_tables(library, run):
    lengths = run.pick([30, 300], [300, 3000])
    for stale in ("a page of NaN", "a page of others", -1, 1 << 30):
        asked = paged(run.rng, [1, 3], lengths, filler=numpy.nan, causal=True, unused=-1)
        free = numpy.setdiff1d(numpy.arange(len(asked.k)), asked.page_table)  # hold NaN, as nobody's pages do
        entry = {"a page of NaN": free[0], "a page of others": asked.page_table[1, 0]}.get(stale, stale)
        asked.page_table[asked.page_table < 0] = entry
        check_forward(library, asked)


@case(
    "flashinfer-ai/flashinfer#1029",
    "FlashInfer, FA3 backend",
    "keys and values behind the end of a sequence are read, and NaN there comes out",
    "outputs equal double precision where rows between and behind the sequences are NaN",
)
def check_rows_behind_sequences(library, run):
    lengths = run.pick([33, 70], [333, 1700])
    asked = varlen(run.rng, [5, 40], lengths, causal=True)
    room = [n + 30 for n in lengths]
    begins = boundaries(room)[:-1]
    k, v = (numpy.full((sum(room), *x.shape[1:]), numpy.nan, BF16) for x in (asked.k, asked.v))
    for begin, (first, last) in zip(begins, zip(asked.cu_seqlens_k, asked.cu_seqlens_k[1:])):
        k[begin : begin + last - first], v[begin : begin + last - first] = asked.k[first:last], asked.v[first:last]
    check_forward(library, asked.change(k=k, v=v, cu_seqlens_k=boundaries(room), seqused_k=int32(lengths)))


@case(
    "NVIDIA/cudnn-frontend#740",
    "cuDNN",
    "an output buffer's unwritten tail is multiplied by probabilities of zero, and NaN there spreads",
    "outputs equal double precision where rows behind the last sequence of q, k and v are NaN",
)
def check_tail_behind_all_sequences(library, run):
    asked = varlen(run.rng, run.pick([33, 70], [333, 1700]), causal=True)
    tail = lambda x: numpy.concatenate([x, numpy.full((37, *x.shape[1:]), numpy.nan, x.dtype)])
    check_forward(library, asked.change(q=tail(asked.q), k=tail(asked.k), v=tail(asked.v)))


@case(
    "NVIDIA/cudnn-frontend#737",
    "cuDNN",
    "gaps between padded sequences are ignored: rows of other sequences are read",
    "outputs of sequences with gaps before them equal double precision",
)
def check_gaps_between_sequences(library, run):
    room, lengths = run.pick(([50, 64, 40], [33, 64, 7]), ([500, 640, 400], [333, 640, 7]))
    asked = varlen(run.rng, room, causal=True, seqused_q=int32(lengths), seqused_k=int32(lengths))
    check_forward(library, asked)


@case(
    "vllm-project/vllm#37442 vllm-project/vllm#40047",
    "MLA kernels, in vLLM",
    "rows of padding in captured batches keep stale NaN, which scales of the whole batch spread to all",
    "rows that are no query's become 0 where that is asked for, and others equal double precision",
)
def check_rows_of_padding_become_zero(library, run):
    asked = paged(
        run.rng, [1, 1, 3], run.pick([20, 90, 40], [200, 900, 400]), causal=True, zero_padding=True, unwritten=True
    )
    asked.q = numpy.concatenate([asked.q, numpy.full((11, *asked.q.shape[1:]), numpy.nan, BF16)])
    got = library.forward(asked)
    compare(asked, got)
    assert (got.o[5:] == 0).all(), "rows of padding are not 0"


@case(
    "Dao-AILab/flash-attention#1788",
    "FlashAttention-2",
    "cache_leftpad is taken and not used",
    "outputs over caches whose first rows are padding of NaN equal double precision",
)
def check_left_padding(library, run):
    asked = paged(run.rng, [1, 2], run.pick([50, 90], [500, 900]), causal=True, cache_leftpad=int32([7, 40]))
    for b, pad in enumerate(asked.cache_leftpad):
        for row in range(pad):
            for pool in (asked.k, asked.v):
                pool[asked.page_table[b, row // 16], row % 16] = numpy.nan
    check_forward(library, asked)


@case(
    "Dao-AILab/flash-attention#2391",
    "FlashAttention-4",
    "tiles beyond the last sequence read behind cu_seqlens, and write behind the output",
    "outputs of sequences of 0, 5, 0, 130 and 0 tokens equal double precision, and rows around them stay as they were",
)
def check_empty_sequences_among_others(library, run):
    lengths = [0, 5, 0, run.pick(130, 1300), 0]
    asked = varlen(run.rng, lengths, causal=True, unwritten=True)
    guard = lambda x: numpy.concatenate([x, normal(run.rng, 9, *x.shape[1:])])
    asked = asked.change(q=guard(asked.q), k=guard(asked.k), v=guard(asked.v))
    got = library.forward(asked)
    compare(asked, got)
    assert numpy.isnan(got.o[sum(lengths) :]).all(), "rows behind the last sequence were written"


@case(
    "NVIDIA/cudnn-frontend#943",
    "cuDNN",
    "queries of a sequence without keys come out as NaN",
    "they have o = 0 and LSE = −∞, and other sequences equal double precision",
)
def check_sequences_without_keys(library, run):
    check_forward(library, varlen(run.rng, [5, 40, 3], [0, run.pick(70, 700), 0]))


@case(
    "jax-ml/jax#27224",
    "Pallas",
    "outputs are wrong unless lengths are multiples of the block",
    "outputs of 192 and of 77 queries over 131 keys equal double precision",
)
def check_lengths_beside_blocks(library, run):
    check_forward(
        library,
        dense(run.rng, seqlen_q=192, head_dim=16, heads=2),
        dense(run.rng, seqlen_q=77, seqlen_kv=131, head_dim=16),
    )


@case(
    "flashinfer-ai/flashinfer#4299",
    "FlashInfer",
    "head dims that are no multiple of 16 give wrong outputs",
    "outputs at head_dim 72 and 136 equal double precision, or are refused",
)
def check_head_dims_of_eights(library, run):
    for head_dim in (72, 136):
        check_forward(library, dense(run.rng, seqlen_q=run.pick(50, 500), head_dim=head_dim, causal=True))


@case(
    "flashinfer-ai/flashinfer#1993",
    "TensorRT-LLM's kernels, in FlashInfer",
    "decoding at head_dim 256 is wrong",
    "outputs of 1 and 4 queries a request over pages at head_dim 256 equal double precision",
)
def check_decoding_at_head_dim_256(library, run):
    for queries in (1, 4):
        check_forward(
            library, paged(run.rng, [queries] * 2, run.pick([70, 130], [700, 1300]), head_dim=256, causal=True)
        )


@case(
    "Dao-AILab/flash-attention#1417",
    "FlashAttention-2",
    "outputs differ between a cache with lengths and the same cache cut to these lengths",
    "outputs over a cache with room, of NaN, behind its keys equal double precision, as over the cache cut short",
)
def check_caches_with_room(library, run):
    used = run.pick(70, 1500)
    asked = dense(run.rng, batch=2, seqlen_q=1, seqlen_kv=used, heads=8, heads_kv=2, causal=True)
    room = lambda x: numpy.concatenate([x, numpy.full_like(x, numpy.nan)], axis=1)
    check_forward(library, asked, asked.change(k=room(asked.k), v=room(asked.v), seqused_k=int32([used, used])))


@case(
    "pytorch/pytorch#182593",
    "FlexAttention over pages",
    "the output depends on where in memory the pages of a sequence lie",
    "the same requests over pages in another order come out bit-identical",
)
def check_pages_in_another_order(library, run):
    asked = paged(run.rng, [1, 7], run.pick([90, 150], [900, 1500]), causal=True, unused=-1)
    order = run.rng.permutation(len(asked.k))
    place = numpy.argsort(order)
    table = numpy.where(asked.page_table < 0, -1, place[asked.page_table]).astype(numpy.int32)
    moved = asked.change(k=asked.k[order], v=asked.v[order], page_table=table)
    for one, other in zip(sequences(asked), sequences(moved)):
        assert numpy.array_equal(one.k, other.k)
    assert numpy.array_equal(library.forward(moved).o, library.forward(asked).o), "bits differ"
    assert numpy.abs(library.forward(moved).o - solve(asked).o).max() < 0.05
