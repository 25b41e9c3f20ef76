"""Scores that are huge, tiny or all −∞, sinks, and partial results."""

import numpy

from .case import case
from .exact import compare, compare_lse, solve
from .interface import check_forward, check_gradients
from .problem import FP16, dense, int32, normal, paged, varlen


@case(
    "flashinfer-ai/flashinfer#4451",
    "FlashInfer",
    "a row whose only key has a score below −50,000 comes out as 0: that number stood for no key",
    "one key of a score of −65,536 gives its value and its LSE",
)
def check_one_key_far_below(library, run):
    asked = varlen(run.rng, [1], heads=4, head_dim=64)
    asked.q, asked.k = numpy.full_like(asked.q, 128), numpy.full_like(asked.k, -64)
    check_forward(library, asked)


@case(
    "ml-explore/mlx#2626 pytorch/pytorch#109517",
    "MLX, memory-efficient attention in PyTorch",
    "large negative numbers as a mask lose rows, or make them NaN",
    "biases of −1e9, −1e10 and −1e15 leave the visible keys alone; rows of nothing else are the mean; fp16",
)
def check_large_negative_bias(library, run):
    seqlen_kv = run.pick(90, 300)
    for queries in (1, 8, 90):
        asked = dense(run.rng, seqlen_q=queries, seqlen_kv=seqlen_kv, dtype=FP16)
        mean = asked.v.astype(float).mean(1, keepdims=True)  # where floats do not hold what distinguishes scores
        for low in (-1e9, -1e10, -1e15):
            for padded in (20, seqlen_kv - 3, seqlen_kv):
                bias = numpy.where(numpy.arange(seqlen_kv) < padded, low, 0).astype(numpy.float32)[None, None, None]
                o = library.forward(asked.change(bias=bias)).o
                right = [solve(asked.change(bias=bias)).o, *[mean] * (padded == seqlen_kv)]
                error = min((numpy.abs(o - one).max() for one in right), key=lambda x: numpy.nan_to_num(x, nan=1e9))
                what = f"{low:g} for {padded} of {seqlen_kv} keys, {queries} queries"
                assert error <= 0.02, f"o is off by {error:.3g} with {what}"


@case(
    "pytorch/pytorch#125674 pytorch/pytorch#121558",
    "FlashAttention-2 and memory-efficient attention, in PyTorch",
    "NaN from q, k and v that a training loop makes as large as 5e8",
    "outputs of q and k of 1e4 to 1e5 (scores to 8e10) are finite means of values, equal scores their mean",
)
def check_huge_scores(library, run):
    for scale in (1e4, 3e4, 1e5):
        asked = dense(run.rng, seqlen_q=run.pick(60, 300))
        asked.q, asked.k = (normal(run.rng, *x.shape, scale=scale) for x in (asked.q, asked.k))
        outcome = library.forward(asked)
        bad = int((~numpy.isfinite(outcome.o)).any(-1).sum())
        assert not bad, f"{bad} of {outcome.o[..., 0].size} rows are not finite at q and k of {scale:g}"
        error = numpy.abs(outcome.o - solve(asked).o).max(-1)  # of two keys so near that floats cannot tell, the mean
        assert numpy.quantile(error, 0.95) <= 0.05, f"o is off by {error.max():.3g} at q and k of {scale:g}"
        same = asked.change(q=numpy.full_like(asked.q, scale), k=numpy.full_like(asked.k, scale))
        mean = asked.v.astype(float).mean(1, keepdims=True)
        error = numpy.abs(library.forward(same).o - mean).max()
        assert error <= 0.02, f"equal scores of {scale * scale * 8:.1g} give a result that is off by {error:.3g}"


@case(
    "huggingface/transformers#38690",
    "FlashAttention and others, by Transformers",
    "NaN where a row of padding sees no key at all, by a mask of −∞",
    "rows of −∞ alone have o = 0 and LSE = −∞; rows with one finite score equal double precision",
)
def check_rows_of_minus_infinity(library, run):
    seqlen = run.pick(50, 500)
    bias = numpy.where(run.rng.random((2, 1, seqlen, seqlen)) < 0.3, -numpy.inf, 0).astype(numpy.float32)
    bias[:, :, 3:7], bias[:, :, 7] = -numpy.inf, -numpy.inf
    bias[:, :, 7, seqlen // 2] = 1
    check_forward(library, dense(run.rng, batch=2, seqlen_q=seqlen, bias=bias))


@case(
    "flashinfer-ai/flashinfer#4051",
    "FlashInfer",
    "merging two states without keys gives NaN",
    "it gives o = 0 and LSE = −∞, whatever the outputs of such states hold",
)
def check_merge_of_empty_states(library, run):
    outs = [normal(run.rng, 5, 2, 64) for _ in range(2)]
    lses = [normal(run.rng, 2, 5, dtype=numpy.float32) for _ in range(2)]
    outs[0][:3], lses[0][:, :3] = numpy.nan, -numpy.inf
    outs[1][1:3], lses[1][:, 1:3] = numpy.nan, -numpy.inf
    o, lse = library.merge(outs, lses)
    assert (o[1:3] == 0).all() and numpy.isneginf(lse[:, 1:3]).all(), (
        "states without keys do not give o = 0, LSE = −∞"
    )
    assert numpy.array_equal(o[0], outs[1][0].astype(float)), "a state without keys changes the other"
    assert numpy.isfinite(o).all()


@case(
    "sgl-project/sglang#40903 flashinfer-ai/flashinfer#4485 vllm-project/vllm#47079 sgl-project/sglang#33064",
    "FlashInfer, FlashMLA, in SGLang and vLLM",
    "partial results are merged with LSE of base 2 as if they were natural, or the other way round",
    "two halves of the keys, merged by their LSE, give the whole, o and LSE",
)
def check_halves_merge_to_the_whole(library, run):
    lengths_q, keys = [40], run.pick(90, 900)
    asked = varlen(run.rng, lengths_q, [keys], heads=4, heads_kv=2, head_dim=128)
    half = lambda a, b: asked.change(k=asked.k[a:b], v=asked.v[a:b], cu_seqlens_k=int32([0, b - a]))
    parts = [library.forward(half(0, keys // 3)), library.forward(half(keys // 3, keys))]
    narrow = [one.o.astype(asked.q.dtype) for one in parts]
    o, lse = library.merge(narrow, [one.lse.astype(numpy.float32) for one in parts])
    right = solve(asked)
    error = numpy.abs(o - right.o).max()
    assert error <= 0.02 * numpy.abs(right.o).max() + 0.01, f"the merged output is off by {error:.3g}"
    compare_lse(lse, right.lse)


@case(
    "Dao-AILab/flash-attention#2752 Dao-AILab/flash-attention#2706",
    "FlashAttention-4",
    "LSE is NaN beside a sink where there is no key, and infinite beside a sink of 100",
    "without keys o = 0 and LSE is the sink or −∞, never NaN; with sinks of 100 both equal double precision",
)
def check_sinks_without_keys(library, run):
    sinks = numpy.array([0.5, 100, -3, 20], numpy.float32)
    asked = varlen(run.rng, [3, 5], [run.pick(40, 400), 0], heads=4, sinks=sinks)
    got, right = library.forward(asked), solve(asked)
    assert (got.o[3:] == 0).all() and not numpy.isnan(got.o).any(), "o without keys is not 0"
    if got.lse is not None:
        empty = got.lse[:, 3:]
        assert (numpy.isneginf(empty) | (abs(empty - sinks[:, None]) < 1e-3)).all(), (
            f"LSE without keys is {empty[:, 0]}"
        )
        compare_lse(got.lse[:, :3], right.lse[:, :3])
    got.lse = None
    compare(asked, got)


@case(
    "pytorch/torchtitan#2211 vllm-project/vllm-metal#550",
    "TorchTitan, vLLM on Metal",
    "sinks are a sigmoid of LSE instead of a score, or are not looked at",
    "outputs with sinks of −5 to 20, dense and over pages, equal double precision",
)
def check_sinks_are_scores(library, run):
    sinks = numpy.array([-5, -1.5, 2, 5.5, 9, 12.5, 16, 20], numpy.float32)  # which bf16 holds, too
    check_forward(
        library,
        dense(run.rng, seqlen_q=run.pick(70, 700), heads=8, heads_kv=2, causal=True, sinks=sinks),
        paged(run.rng, [1, 4], run.pick([90, 40], [900, 400]), causal=True, sinks=sinks),
    )


@case(
    "thu-ml/SageAttention#93",
    "SageAttention",
    "black pictures: sums of P · V in fp16 overflow",
    "values of 200 under 700 equal scores, whose sum is beyond fp16, give 200",
)
def check_sums_beyond_half_precision(library, run):
    asked = dense(run.rng, seqlen_q=20, seqlen_kv=700, head_dim=64, dtype=FP16)
    asked.q = numpy.zeros_like(asked.q)
    asked.v = (200 + asked.v.astype(numpy.float32)).astype(FP16)
    check_forward(library, asked)


@case(
    "vllm-project/vllm#57156",
    "FlashInfer, in vLLM",
    "NaN in values that a mask hides comes out, as 0 · NaN",
    "outputs and gradients equal double precision where hidden keys lie beyond the used ones and are NaN or ∞",
)
def check_nan_behind_used_keys(library, run):
    used, room = run.pick((33, 80), (333, 800))
    asked = dense(run.rng, batch=2, seqlen_q=room, causal=False, gradients=True)
    for b in range(2):
        asked.k[b, used:], asked.v[b, used:] = (numpy.nan, numpy.inf)[b], (numpy.nan, numpy.inf)[b]
    check_gradients(library, asked.change(seqused_k=int32([used, used])))
