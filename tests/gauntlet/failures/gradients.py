"""Gradients that were wrong, NaN, zero or missing."""

import numpy

from .case import case
from .interface import check_gradients
from .problem import BF16, dense, normal, varlen


def far_below(rng, *, seqlen_q, seqlen_kv, head_dim=64, heads=2, **fields):
    """Scores near −120, so that exp(−lse) does not fit into a float."""
    asked = dense(rng, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, heads=heads, head_dim=head_dim, gradients=True, **fields)
    asked.q, asked.k = (normal(rng, *x.shape, scale=0.1) for x in (asked.q, asked.k))
    asked.q[..., 0], asked.k[..., 0] = 1, -120 * head_dim**0.5
    return asked


@case(
    "pytorch/pytorch#196678 huggingface/trl#7181",
    "cuDNN, in PyTorch",
    "NaN in dq at lengths of 128 n + 64 where a mask tensor is given and LSE is below −88.7",
    "gradients equal double precision at 64, 192 and 704 queries, with a causal mask as a tensor, LSE near −115",
)
def check_length_64_beside_a_mask(library, run):
    for seqlen in run.pick((192,), (64, 192, 704)):
        keep = numpy.tri(seqlen, dtype=bool)[None, None]
        check_gradients(library, far_below(run.rng, seqlen_q=seqlen, seqlen_kv=seqlen, keep=keep))


@case(
    "NVIDIA/cudnn-frontend#1072",
    "cuDNN",
    "NaN in all of dk and dv for one query over 128 keys where LSE is negative",
    "gradients of one query over 128 keys, and over 100, equal double precision, LSE near −115",
)
def check_one_query_of_negative_lse(library, run):
    for seqlen_kv in (128, 100):
        check_gradients(library, far_below(run.rng, batch=4, heads=16, seqlen_q=1, seqlen_kv=seqlen_kv))


@case(
    "NVIDIA/cudnn-frontend#160",
    "cuDNN",
    "NaN in gradients of sequences of 2 tokens",
    "gradients of 2, 3 and 65 tokens equal double precision",
)
def check_gradients_of_few_tokens(library, run):
    for seqlen in (2, 3, 65):
        check_gradients(library, dense(run.rng, seqlen_q=seqlen, head_dim=64, gradients=True))


@case(
    "NVIDIA/TransformerEngine#3216",
    "FlashAttention-4, in TransformerEngine",
    "dq, dk and dv are some 5 times too large at head_dim 256 with two sequences or more, on activations of a model",
    "gradients at head_dim 256, 8 query heads to a KV head, causal, two peaked sequences, equal double precision",
)
def check_head_dim_256_of_two_sequences(library, run):
    seqlen, heads = run.pick((70, 8), (512, 8))
    asked = dense(
        run.rng, batch=2, seqlen_q=seqlen, heads=heads, heads_kv=heads // 8, head_dim=256, gradients=True, causal=True
    )
    loud = 1 + 15 * (run.rng.random(256) < 0.02)  # some channels are much larger, as in models
    asked.q, asked.k = ((x.astype(numpy.float32) * loud**0.5).astype(BF16) for x in (asked.q, asked.k))
    check_gradients(library, asked)


@case(
    "Dao-AILab/flash-attention#2541",
    "FlashAttention-4",
    "dv is NaN or garbage at head_dim 256 where q, k and v are views of one projection",
    "gradients at head_dim 256 of q, k and v that lie in one array equal double precision",
)
def check_views_of_one_projection(library, run):
    seqlen = run.pick(70, 512)
    whole = normal(run.rng, 1, seqlen, 3, 2, 256)
    asked = dense(run.rng, seqlen_q=seqlen, head_dim=256, gradients=True, causal=True)
    check_gradients(library, asked.change(q=whole[:, :, 0], k=whole[:, :, 1], v=whole[:, :, 2]))


@case(
    "Dao-AILab/flash-attention#2623",
    "FlashAttention-4",
    "gradients of block-sparse attention at head_dim 64 are wrong, the output is right",
    "gradients over random blocks of 128 equal double precision",
)
def check_gradients_over_blocks(library, run):
    count = run.pick(3, 16)
    seen = run.rng.random((count, count)) < 0.4
    seen[:, 0] = True
    check_gradients(library, dense(run.rng, seqlen_q=128 * count, head_dim=64, gradients=True, blocks=(seen, 128)))


@case(
    "NVIDIA/cudnn-frontend#462",
    "cuDNN",
    "dq, dk and dv of varlen sequences are zero where statistics lie head by head, as FlashAttention has them",
    "gradients of varlen causal sequences equal double precision",
)
def check_gradients_of_varlen_sequences(library, run):
    lengths = run.pick([70, 1, 33], [700, 1, 333, 1500, 64])
    check_gradients(library, varlen(run.rng, lengths, heads=4, heads_kv=2, gradients=True, causal=True))


@case(
    "Dao-AILab/flash-attention#2544",
    "FlashAttention-4",
    "dq of varlen sequences with softcap is wrong: backward ignored the cap",
    "gradients of varlen sequences with softcap 15 and large scores equal double precision",
)
def check_softcap_of_varlen_sequences(library, run):
    asked = varlen(run.rng, run.pick([60, 41], [640, 41, 1000]), gradients=True, causal=True, softcap=15.0)
    asked.q = normal(run.rng, *asked.q.shape, scale=6)
    check_gradients(library, asked)


@case(
    "pytorch/pytorch#158212",
    "FlexAttention, compiled",
    "dk and dv are wrong or NaN for a mask whose rows see parts of several blocks, some rows nothing",
    "gradients for a mask of residues in three parts equal double precision, and rows without keys add nothing",
)
def check_mask_of_residues(library, run):
    part = run.pick(64, 512)
    i, j = numpy.ogrid[: 3 * part, : 3 * part]
    keep = ((i // part == j // part) & (i % 4 == j % 4)) | ((i >= part) & (j < part) & (j % 4 == 1) & (j <= i - part))
    keep &= i % 7 != 3
    check_gradients(library, dense(run.rng, seqlen_q=3 * part, gradients=True, keep=keep[None, None]))


@case(
    "pytorch/pytorch#153799",
    "FlexAttention, compiled",
    "NaN in gradients at lengths beside multiples of 128 where a causal mask meets scores that grow with distance",
    "gradients of causal attention with some q − k added to scores, 129 and 1,025 tokens, equal double precision",
)
def check_scores_that_grow_with_distance(library, run):
    seqlen = run.pick(129, 1025)
    i, j = numpy.ogrid[:seqlen, :seqlen]
    bias = ((i - j) // 8 * 8).astype(numpy.float32)[None, None]  # which bf16 holds, too
    check_gradients(library, dense(run.rng, seqlen_q=seqlen, heads=1, gradients=True, causal=True, bias=bias))


@case(
    "pytorch/pytorch#146377",
    "FlexAttention, compiled",
    "dk holds garbage where k has certain strides",
    "gradients of k and d_o that lie heads before rows, and of rows with gaps, equal double precision",
)
def check_strides_in_backward(library, run):
    seqlen = run.pick(60, 600)
    asked = dense(run.rng, batch=2, seqlen_q=seqlen, heads=4, gradients=True)
    by_heads = lambda x: numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    gaps = numpy.full((2, seqlen, 5, 96), numpy.nan, BF16)
    gaps[:, :, :4, :64] = asked.v
    check_gradients(library, asked.change(k=by_heads(asked.k), d_o=by_heads(asked.d_o), v=gaps[:, :, :4, :64]))


@case(
    "jax-ml/jax#32242",
    "cuDNN, in JAX",
    "NaN in the gradient of a bias of fp32 beside q of bf16",
    "the gradient of a bias of fp32, (1, heads, seqlen, seqlen), equals double precision",
)
def check_gradient_of_a_float_bias(library, run):
    seqlen = run.pick(40, 128)
    bias = normal(run.rng, 1, 4, seqlen, seqlen).astype(numpy.float32)
    check_gradients(
        library,
        dense(
            run.rng,
            batch=run.pick(2, 8),
            seqlen_q=seqlen,
            heads=4,
            head_dim=32,
            gradients=True,
            bias=bias,
            d_bias=True,
        ),
    )


@case(
    "jax-ml/jax#27184",
    "cuDNN, in JAX",
    "a bias has no gradient, without a word",
    "the gradient of a bias (1, heads, 1, keys), summed over batch and queries, equals double precision",
)
def check_gradient_of_a_broadcast_bias(library, run):
    seqlen = run.pick(40, 512)
    bias = normal(run.rng, 1, 2, 1, seqlen).astype(numpy.float32)
    check_gradients(library, dense(run.rng, batch=2, seqlen_q=seqlen, gradients=True, bias=bias, d_bias=True))


@case(
    "Dao-AILab/flash-attention#1973 NVIDIA/TransformerEngine#3551",
    "FlashAttention-4, TransformerEngine",
    "gradients of learnable sinks are missing, or exactly zero",
    "gradients of sinks of −2 to 3 equal double precision, and those of q, k and v beside them",
)
def check_gradients_of_sinks(library, run):
    sinks = numpy.array([-2, -0.5, 1.25, 3], numpy.float32)  # which bf16 holds, too
    check_gradients(
        library,
        dense(
            run.rng,
            seqlen_q=run.pick(70, 700),
            heads=4,
            heads_kv=2,
            gradients=True,
            causal=True,
            sinks=sinks,
            d_sinks=True,
        ),
    )


@case(
    "XunhaoLai/native-sparse-attention-triton#27",
    "NSA in Triton",
    "dk and dv go to other heads unless there are as many KV heads as heads that share one; wide values cut dq",
    "gradients with 6 query heads over 2 KV heads, values wider and narrower than keys, equal double precision",
)
def check_grouped_heads_and_wide_values(library, run):
    for head_dim, head_dim_v in ((64, 128), (128, 64)):
        check_gradients(
            library,
            dense(
                run.rng,
                seqlen_q=run.pick(40, 400),
                heads=6,
                heads_kv=2,
                head_dim=head_dim,
                head_dim_v=head_dim_v,
                gradients=True,
            ),
        )


@case(
    "pytorch/pytorch#189045 pytorch/pytorch#41508",
    "torch.nn.MultiheadAttention",
    "one query that sees no key makes the gradients of the whole batch NaN",
    "such queries have o = 0 and dq = 0, and gradients of all others equal double precision",
)
def check_gradients_beside_blind_queries(library, run):
    seqlen = run.pick(50, 500)
    keep = run.rng.random((2, 1, seqlen, seqlen)) < 0.5
    keep[:, :, 5:9] = False
    check_gradients(library, dense(run.rng, batch=2, seqlen_q=seqlen, gradients=True, keep=keep))
