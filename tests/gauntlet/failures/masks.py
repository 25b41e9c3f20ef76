"""Masks and scores that were ignored, shifted or replaced by others."""

import numpy

from .case import case
from .interface import check_forward, check_gradients
from .problem import dense, int32, normal, varlen


@case(
    "NVIDIA/TransformerEngine#3528",
    "FlashAttention-4, in TransformerEngine",
    "the output of causal attention is all zero",
    "causal outputs equal double precision",
)
def check_causal_output(library, run):
    check_forward(library, dense(run.rng, batch=2, seqlen_q=run.pick(150, 1024), heads=8, head_dim=128, causal=True))


@case(
    "flashinfer-ai/flashinfer#4972 flashinfer-ai/flashinfer#4992",
    "FlashInfer",
    "windows without a causal mask lose keys of the first queries where the keys are split",
    "outputs of a window that is open to the right equal double precision with 1 and 4 splits",
)
def check_window_over_splits(library, run):
    seqlen_q, seqlen_kv, left = run.pick((90, 700, 120), (300, 4096, 333))
    for splits in (1, 4):
        check_forward(
            library,
            dense(
                run.rng,
                seqlen_q=seqlen_q,
                seqlen_kv=seqlen_kv,
                heads=8,
                heads_kv=2,
                head_dim=128,
                window=(left, -1),
                num_splits=splits,
            ),
        )


@case(
    "jax-ml/jax#39576",
    "cuDNN, in JAX",
    "a window (left, 0) without is_causal sees all of the future",
    "outputs and gradients of the window (20, 0) equal double precision",
)
def check_window_without_causal(library, run):
    check_gradients(library, dense(run.rng, seqlen_q=run.pick(90, 900), gradients=True, window=(20, 0)))


@case(
    "NVIDIA/Megatron-LM#7039",
    "Megatron-LM",
    "a sliding window throws away the mask of padding that the caller gave",
    "outputs of a window and a mask of padding in one call see what both leave",
)
def check_window_beside_padding(library, run):
    seqlen = run.pick(80, 800)
    keep = numpy.arange(seqlen)[None, None, None] >= int32([0, seqlen // 3])[:, None, None, None]
    check_forward(library, dense(run.rng, batch=2, seqlen_q=seqlen, causal=True, window=(seqlen // 2, 0), keep=keep))


@case(
    "huggingface/accelerate#4177",
    "Accelerate, context parallelism",
    "every mask is dropped and is_causal set instead, so that windows become full causal attention",
    "outputs and gradients of causal attention of documents within a window equal double precision",
)
def check_documents_within_a_window(library, run):
    seqlen = run.pick(100, 1000)
    document = numpy.sort(run.rng.integers(0, 4, seqlen))
    keep = (document[:, None] == document)[None, None]
    check_gradients(library, dense(run.rng, seqlen_q=seqlen, gradients=True, causal=True, window=(13, 0), keep=keep))


@case(
    "huggingface/transformers#46634",
    "Transformers",
    "packed sequences see each other where a mask of ones is given beside their positions",
    "each of several packed sequences comes out as alone, in the rounding of one output",
)
def check_packed_sequences_apart(library, run):
    lengths = run.pick([40, 33, 70], [400, 333, 700])
    asked = varlen(run.rng, lengths, causal=True)
    o, ends = library.forward(asked).o, asked.cu_seqlens_q
    for begin, end in zip(ends, ends[1:]):
        alone = asked.change(
            **{name: getattr(asked, name)[begin:end] for name in "qkv"},
            cu_seqlens_q=int32([0, end - begin]),
            cu_seqlens_k=int32([0, end - begin]),
        )
        error = numpy.abs(library.forward(alone).o - o[begin:end]).max()
        assert error <= 0.02, f"a sequence differs by {error:.3g} from itself alone"
    check_forward(library, asked)


@case(
    "huggingface/transformers#39408",
    "Transformers",
    "a window of FlashAttention is wider by one than the model's",
    "values that count the keys which are seen tell min(q, left) + 1 of them, for each query",
)
def check_window_counts_keys(library, run):
    seqlen, left = 64, 9
    asked = dense(run.rng, seqlen_q=seqlen, head_dim=64, causal=True, window=(left, 0))
    asked.q = numpy.zeros_like(asked.q)
    asked.v = numpy.broadcast_to(numpy.eye(seqlen, 64, dtype=asked.v.dtype)[None, :, None], asked.v.shape).copy()
    seen = (library.forward(asked).o > 0.01).sum(-1)
    expected = numpy.minimum(numpy.arange(seqlen), left) + 1
    assert (seen == expected[None, :, None]).all(), f"queries see {seen[0, :, 0].tolist()} keys"


@case(
    "flashinfer-ai/flashinfer#4452",
    "FlashInfer",
    "LSE of rows that see no key is finite (−49,994) where there are more queries than keys",
    "of 100 queries over 60 keys, causal, the first 40 have o = 0 and LSE = −∞",
)
def check_more_queries_than_keys(library, run):
    seqlen_q, seqlen_kv = run.pick((100, 60), (1000, 600))
    asked = dense(run.rng, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, causal=True)
    check_forward(library, asked, asked.change(num_splits=3))


@case(
    "sgl-project/sglang#33915 flashinfer-ai/flashinfer#1193",
    "FlashInfer, in SGLang",
    "softcap is taken where it has no effect: Gemma-2 and Grok-1 run uncapped",
    "outputs with softcap 30 of scores up to 200 equal double precision",
)
def check_softcap_takes_effect(library, run):
    asked = dense(run.rng, seqlen_q=run.pick(70, 700), heads=4, heads_kv=2, head_dim=128, causal=True, softcap=30.0)
    asked.q = normal(run.rng, *asked.q.shape, scale=30)
    check_forward(library, asked)


@case(
    "Dao-AILab/flash-attention#2402",
    "FlashAttention-4",
    "softcap computes score · tanh(score) instead of cap · tanh",
    "outputs with softcap 15 of small and large scores equal double precision",
)
def check_softcap_formula(library, run):
    asked = dense(run.rng, seqlen_q=run.pick(70, 700), softcap=15.0)
    check_forward(library, asked, asked.change(softmax_scale=2.0))


@case(
    "flashinfer-ai/flashinfer#1606",
    "FlashInfer",
    "under tensor parallelism each rank takes the ALiBi slopes of the first heads",
    "outputs of the second half of the heads, with their slopes, are those of the whole, to the bit",
)
def check_alibi_of_some_heads(library, run):
    slopes = (2.0 ** -numpy.arange(1, 9)).astype(numpy.float32)
    asked = dense(run.rng, seqlen_q=run.pick(60, 600), heads=8, heads_kv=8, causal=True, alibi_slopes=slopes)
    whole = library.forward(asked)
    half = asked.change(
        **{name: numpy.ascontiguousarray(getattr(asked, name)[:, :, 4:]) for name in "qkv"}, alibi_slopes=slopes[4:]
    )
    assert numpy.array_equal(library.forward(half).o, whole.o[:, :, 4:]), (
        "heads 4 to 7 alone differ from those of all"
    )
    check_forward(library, half)
