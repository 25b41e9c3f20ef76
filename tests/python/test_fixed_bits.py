"""Calls whose `bits_of` are equal compute bitwise identical results: layouts, pages, chunks, batches, families and configs."""

import hashlib
import os
import pathlib

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from bit_cases import AXES, CONFIGS, DEVICE, IS_HOPPER, BitCase, Computed, differences, pairwise
from bit_draws import OF_GROUP, run_by_workers
from exact_attention import exact_attention
from seeded import SEED, some

COVER = pairwise(AXES, BitCase.is_possible, numpy.random.default_rng(49))
GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "fixed_bits.txt"
GOLDEN_CASES = [
    ((64, 64), 1, "none", "none", False, 64, "3 * S + 17"), ((64, 64), 4, "causal", "none", True, 128, "S + 1"),
    ((64, 64), 8, "window", "alibi", False, 64, "S + 1"), ((64, 64), 4, "text", "text", False, 192, "S - 1"),
    ((64, 64), 1, "prefix", "softcap", True, 64, "3 * S + 17"), ((64, 64), 4, "range", "none", False, 64, "T + 1"),
    ((40, 72), 4, "causal", "none", False, 64, "3 * S + 17"), ((40, 72), 8, "none", "text", True, 64, "1"),
    ((128, 128), 4, "causal", "none", False, 128, "3 * S + 17"), ((128, 128), 8, "causal", "softcap", True, 64, "S + 1"),
    ((192, 128), 4, "causal", "none", False, 64, "S + 1"), ((256, 256), 1, "causal", "none", True, 64, "3 * S + 17"),
]  # fmt: skip


SHARE_OF_PAIRS = 216 if IS_HOPPER else 648  # on others the same in fewer families


@pytest.mark.parametrize("case", some(COVER, SHARE_OF_PAIRS), ids=lambda case: "-".join(map(str, vars(case).values())))
def test_pairs(case, rng, place, fetch):
    assert not differences(case, rng, place, fetch)


def test_draws():
    """A few of those that bit_draws.py makes thousands of, by two processes."""
    wrong, done = run_by_workers(SEED, OF_GROUP - 1, 2, workers=2)
    assert done == 2 and not wrong


def spec(**changes):
    return ja.AttentionSpec(**dict(head_dim=64, split_keys=128) | changes)


def test_bits_of_layouts_are_equal():
    layouts = ({}, {"sequences_q": "varlen"}, {"sequences_kv": "varlen", "gqa_ratio": 4}, {"alignment": 8},
               {"sequences_kv": "paged", "page_size": 16}, {"softmax_scale": 0.125}, {"checked": True})
    texts = {ja.bits_of(spec(**layout), "sm_90a") for layout in layouts}
    assert len(texts) == 1, texts
    assert next(iter(texts)).startswith("bits 1 on sm_90a, tile_kv = 128, ")


@pytest.mark.parametrize("device, narrow, wide", [("sm_80", 64, 64), ("sm_89", 64, 32), ("sm_90a", 128, 64),
                                                  ("sm_100a", 64, 64), ("sm_120a", 64, 32)])
def test_bits_of_other_gpus(device, narrow, wide):
    assert ja.bits_of(spec(), device).startswith(f"bits 1 on {device}, tile_kv = {narrow}, ")
    assert ja.bits_of(spec(head_dim=256), device).startswith(f"bits 1 on {device}, tile_kv = {wide}, ")


def test_bits_of_what_decides_are_not():
    own = (ja.mask.text("return k <= q;", name="own"), ja.mask.text("return k < q;", name="own"))
    specs = ({}, {"split_keys": 64}, {"split_keys": 256}, {"dtype": "fp16"}, {"head_dim": 72}, {"head_dim_v": 72},
             {"softmax_scale": 0.25}, {"sinks": True}, {"mask": ja.mask.causal()}, {"score": ja.score.softcap(3)},
             {"mask": own[0]}, {"mask": own[1]}, {"q_positions": True})
    assert len({ja.bits_of(spec(**changes), "sm_90a") for changes in specs}) == len(specs)


@pytest.mark.parametrize("changes, device, error, message", [
    ({"split_keys": 0}, "sm_90a", ja.InvalidSpecError, "split_keys = 0: .*4096"),
    ({"kv_dtype": "fp8_e4m3"}, "sm_90a", ja.InvalidSpecError, "kv_dtype = fp8_e4m3: "),
    ({"head_dim": 512}, "sm_90a", ja.InvalidSpecError, "head_dim = 512: .* 256 is the most"),
    ({"values_in_keys": True, "head_dim": 576, "head_dim_v": 512}, "sm_90a", ja.InvalidSpecError, "values_in_keys"),
    ({}, "sm_1", ja.InvalidArgumentError, "sm_1"),
])  # fmt: skip
def test_bits_that_no_text_says(changes, device, error, message):
    with pytest.raises(error, match=message):
        ja.bits_of(spec(**changes), device)


@pytest.mark.parametrize("value, nearest", [(100, 128), (65, 64), (1, 64), (-3, 0), (2**31 - 1, 1 << 20)])
def test_spans_of_other_sizes_name_the_nearest(value, nearest):
    with pytest.raises(ja.InvalidSpecError, match=f"split_keys = {value} must be .*nearest supported: {nearest}$"):
        spec(split_keys=value)


def hard_rows(rng, case):
    """q and k of 96 queries and 700 keys, among which maxima move in many ways, or are no numbers."""
    q, k = rng.standard_normal((96, 64)), rng.standard_normal((700, 64))
    if case == "jumps":  # by factors of exponentials of up to 2^200
        k[rng.choice(700, 40, replace=False)] *= rng.uniform(1, 20, (40, 1))
    if case == "rising":
        k[:, 0], q[:, 0] = numpy.arange(700) / 20, 3
    if case == "limits":  # exponentials about as large as what a lane has summed up before
        factors = numpy.where(numpy.arange(700) < 128, 1, 0.01)
        factors[rng.integers(128, 700, 8)] = 32
        k[:, 1:], q[:, 1:], q[:, 0], k[:, 0] = 0, 0, rng.uniform(0.99, 1.02, 96), 8 * numpy.log(factors)
    if case == "huge":
        k[:, 0], q[::2, 0] = rng.choice([-2.0**24, 2.0**24, 2.0**25], 700), 2.0**10
    if case == "no numbers":
        q[3], k[301, 5], q[7, 2], k[600, 2] = numpy.nan, numpy.inf, 1, -numpy.inf
    return q, k


@pytest.mark.skipif(not IS_HOPPER, reason="of forward_wgmma")
@pytest.mark.parametrize("case", ["jumps", "rising", "limits", "huge", "no numbers"])
@pytest.mark.parametrize("mask", [None, ja.mask.causal(), ja.mask.sliding_window(100, 0)], ids=str)
def test_later_looks_have_equal_bits(case, mask, rng, place, fetch):
    q, k = (numpy.asarray(x[None, :, None]).astype(ml_dtypes.bfloat16) for x in hard_rows(rng, case))
    v = rng.standard_normal(k.shape).astype(ml_dtypes.bfloat16)
    results = []
    for rescale in ("lazy", "on_overflow"):
        own = spec(mask=mask, split_keys=640)
        config = f"family=forward_wgmma tile_q=64 tile_kv=128 rescale={rescale}"
        o, lse = ja.prepare(own, config=config)(*map(place, (q, k, v)), return_lse=True)
        results.append([numpy.ascontiguousarray(fetch(x)).view(numpy.uint64) for x in (o, lse)])
    for own, other in zip(*results):
        numpy.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("device, error, message", [
    (["sm_90a", "sm_100a"], TypeError, "device must be an int, not a list"), (True, TypeError, "device must be an int"),
    (1.0, TypeError, "device must be an int, not 1.0"), (2**40, ja.InvalidArgumentError, "device: is 1099511627776"),
    (-1, ja.InvalidArgumentError, "there is no device -1"), (99, ja.InvalidArgumentError, "there is no device 99")])
def test_devices_that_are_none(device, error, message):
    with pytest.raises(error, match=message):
        ja.bits_of(spec(), device)


def test_the_device_is_the_current_one():
    arch = "sm_90a" if IS_HOPPER else str(DEVICE.arch)
    assert ja.bits_of(spec()) == ja.bits_of(spec(), 0) == ja.bits_of(spec(), arch)


@pytest.mark.parametrize("arch, config, message", [
    ("sm_90a", "family=forward_wgmma tile_kv=112", "tile_kv = 112 must be 128 with split_keys = 128 on sm_90a"),
    ("sm_90a", "family=forward_split_wgmma tile_kv=64", "tile_kv = 64 must be 128"),
    ("sm_90a", "family=forward_split_kv tile_kv=128 key_warps=2", "key_warps = 2 must be 1 with split_keys"),
    ("sm_90a", "family=forward_split_cluster", "no spans"),
    ("sm_90a", "family=forward_mma_sync tile_kv=64", "tile_kv = 64 must be 128"),
    ("sm_80", "family=forward_mma_sync tile_kv=32", "tile_kv = 32 must be 64 with split_keys = 128 on sm_80"),
    ("sm_80", "family=forward_mma_sync tile_kv=64 rescale=always", "rescale must be lazy with split_keys = 128"),
    ("sm_80", "family=forward_split_kv tile_kv=64 key_warps=4", "key_warps = 4 must be 1 with split_keys"),
    ("sm_120a", "family=forward_mma_tma", "not in spans of split_keys = 128"),
    ("sm_100a", "family=forward_tcgen05", "not in spans of split_keys = 128"),
])  # fmt: skip
def test_configs_of_other_bits_are_refused(arch, config, message):
    with pytest.raises(ja.NoValidConfigError, match=message):
        ja.compile(spec(), arch, config=config)


@pytest.mark.parametrize("arch, config", some([("sm_90a", "family=forward_wgmma tile_kv=128"),
                                               ("sm_80", "family=forward_mma_sync tile_kv=64")]))
def test_no_text_is_fused(arch, config):
    """The compiler would make a multiply-add of the product and the sum."""
    text = ja.score.text("return score * 1.37f + k;", name="scaled")
    fused = {keys: ja.compile(spec(head_dim=16, score=text, split_keys=keys), arch, config)
             for keys in (0, 128)}
    count = {keys: kernel.ptx.count(f"mul.f32 \t%f") for keys, kernel in fused.items()}  # noqa: F541
    scaled = {keys: kernel.ptx.count("0f3FAF5C29") for keys, kernel in fused.items()}  # 1.37
    assert scaled[0] > 0 and scaled[128] > 0
    lines = {keys: [line for line in kernel.ptx.splitlines() if "0f3FAF5C29" in line] for keys, kernel in fused.items()}
    assert all("mul.f32" in line or "mul.rn.f32" in line for line in lines[128]), (lines[128][:3], count)
    assert any("fma" in line for line in lines[0]), lines[0][:3]


def test_results_are_right(rng, place, fetch):
    """One case that blocks compute in many spans one after another, by double precision."""
    family = "forward_wgmma" if IS_HOPPER else "forward_mma_sync"
    case = BitCase("dense", "whole", 1, (family, CONFIGS[family][1]), (64, 64), 4, "causal", "none",
                   False, 64, "7 * S + 5", None)
    computed = Computed(case, rng, place, fetch)
    [(_, _, (o, lse))] = computed.by_the_case()
    q, k, v = (x[0][None] for x in (computed.batch.q, computed.batch.k, computed.batch.v))
    late = k.shape[1] - q.shape[1]
    exact_attention(q, k, v, keep=lambda b, h, i, j: j <= i + late).check(o[None], lse[None])


def test_results_wait_in_several_grids(rng, place, fetch, emulated):
    """The results that wait have room for a part of the blocks: grids follow each other."""
    heads, room, keys = 180, 1 << 21, 200
    q = rng.standard_normal((1, 130, heads, 8)).astype(numpy.float16)
    k, v = (numpy.zeros((1, room, 1, columns), numpy.float16) for columns in (8, 128))
    for x in (k, v):
        x[:, :keys] = rng.standard_normal((1, keys, 1, x.shape[3]))
    config = "family=forward_mma_sync tile_kv=64 tile_q=64 warps=4 stages_k=1 stages_v=1"
    of = lambda ratio: ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=8, head_dim_v=128, gqa_ratio=ratio, split_keys=64),
                                  config=config)
    used = place(numpy.array([keys], numpy.int32))
    o, lse = of(heads)(place(q), place(k), place(v), seqused_k=used, return_lse=True)
    few = slice(0, heads, 30)
    k, v = (place(numpy.ascontiguousarray(x[:, :keys])) for x in (k, v))
    other_o, other_lse = of(6)(place(numpy.ascontiguousarray(q[:, :, few])), k, v, return_lse=True)
    assert (fetch(o)[:, :, few] == fetch(other_o)).all() and (fetch(lse)[:, few] == fetch(other_lse)).all()
    assert numpy.isfinite(fetch(o)).all()


def test_lengths_of_dense_sequences_beside_sinks(rng, place, fetch):
    """Rows behind the lengths are NaN, those of queries become 0, and each request has its bits alone."""
    lengths_q, lengths_k, pads = [3, 5, 1], [0, 70, 200], [9, 0, 40]
    q, k, v = (rng.standard_normal((3, n, h, 64)).astype(numpy.float16) for n, h in ((5, 4), (250, 2), (250, 2)))
    sinks = place(rng.standard_normal(4).astype(numpy.float32))
    alone = []
    for b, (of_q, of_k, pad) in enumerate(zip(lengths_q, lengths_k, pads)):
        own = (x[b : b + 1, begin:end].copy() for x, begin, end in ((q, 0, of_q), (k, pad, pad + of_k), (v, pad, pad + of_k)))
        alone.append(fetch(ja.attention(*map(place, own), sinks=sinks, split_keys=64))[0])
        q[b, of_q:] = k[b, :pad] = k[b, pad + of_k :] = v[b, :pad] = v[b, pad + of_k :] = numpy.nan
    used_q, used_k, pads = (place(numpy.int32(x)) for x in (lengths_q, numpy.add(lengths_k, pads), pads))
    o = fetch(ja.attention(*map(place, (q, k, v)), sinks=sinks, seqused_q=used_q, seqused_k=used_k, cache_leftpad=pads,
                           split_keys=64, zero_padding=True))
    for b, own in enumerate(alone):
        assert numpy.array_equal(o[b, : lengths_q[b]], own) and not o[b, lengths_q[b] :].any()
    assert not alone[0].any() and alone[1].any()


@pytest.mark.parametrize("family", some(list(CONFIGS)))
def test_largest_scores_of_all_spans(family, rng, place, fetch):
    q, k, v = (rng.standard_normal((1, n, h, 64)).astype(numpy.float16) for n, h in ((40, 4), (300, 2), (300, 2)))
    wanted = ja.AttentionSpec(dtype="fp16", head_dim=64, gqa_ratio=2, split_keys=64, row_max=True)
    kernel = ja.prepare(wanted, config=f"family={family} tile_kv=64 {CONFIGS[family][0]}")
    _, aux = kernel(place(q), place(k), place(v), return_aux=("row_max",))
    scores = numpy.einsum("bqhd,bkhd->bhqk", q.astype(float), numpy.repeat(k, 2, 2).astype(float)) / 8
    numpy.testing.assert_allclose(fetch(aux["row_max"]), scores.max(-1), rtol=4e-6)


def test_output_functors(rng, place, fetch):
    q, k, v = (rng.standard_normal((1, n, h, 64)).astype(numpy.float16) for n, h in ((40, 4), (300, 2), (300, 2)))
    output = ja.output.text("return value * 1.37f + value * value * 0.11f - gate;", name="sums",
                            tensors={"gate": "fp32 as_row"})
    wanted = ja.AttentionSpec(dtype="fp16", head_dim=64, gqa_ratio=2, split_keys=64, output=output)
    tensors = {"gate": place(rng.standard_normal((1, 40, 4)).astype(numpy.float32))}
    every = [fetch(ja.prepare(wanted, config=f"family={family} tile_kv=64 {configs[0]}")(
        place(q), place(k), place(v), tensors=tensors)) for family, configs in CONFIGS.items()]
    assert all((o == every[0]).all() for o in every) and numpy.isfinite(every[0]).all()


def test_gradients(make, rng):
    """The spans are forward's: gradients are those of its o and LSE."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    import jit_attention.torch as jt

    q, k, v, do = (make(70 + late, heads, 64) for late, heads in ((0, 4), (130, 2), (130, 2), (0, 4)))
    lengths = dict(cu_seqlens_q=torch.tensor([0, 30, 70]), cu_seqlens_k=torch.tensor([0, 120, 200]))
    lengths = {name: array.int().to(q.device) for name, array in lengths.items()}
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    o, lse = jt.attention(*leaves, mask=ja.mask.causal(), split_keys=64, return_lse=True, deterministic=True, **lengths)
    gradients = torch.autograd.grad(o, leaves, do)
    alone = ja.attention_backward(do, q, k, v, o.detach(), lse.detach(), mask=ja.mask.causal(), deterministic=True,
                                  **lengths)
    for own, other in zip(gradients, alone):
        assert torch.equal(own, other) and own.abs().max() > 0.01


def golden_bits():
    """Lines of the file behind each title, "bits 1 on sm_90a"."""
    kept = {}
    for line in GOLDEN.read_text().splitlines():
        if line.startswith("bits "):
            kept[line] = own = []
        else:
            own.append(line)
    return kept


def test_bits_of_a_version(emulated, place, fetch):
    """Bits that move want another version, by which trainers and engines know: raise bits_version in
    generator/kernels/fixed_bits.h, and renew the file with JIT_ATTENTION_RENEW_BITS=1 on each of its architectures."""
    if not emulated:
        pytest.skip("numbers of the emulator")
    title = ja.bits_of(spec()).partition(",")[0]
    arch = title.split()[-1]
    renews = os.environ.get("JIT_ATTENTION_RENEW_BITS") == "1"
    lines = {}
    for number in range(len(GOLDEN_CASES)) if renews else some(range(len(GOLDEN_CASES))):
        head_dims, ratio, mask, score, sinks, split_keys, length = GOLDEN_CASES[number]
        case = BitCase("dense", "whole", 1, ("any", ""), head_dims, ratio, mask, score, sinks, split_keys, length, None)
        computed = Computed(case, numpy.random.default_rng([49, number]), place, fetch)
        words = b"".join(numpy.ascontiguousarray(x).tobytes() for x in computed.canon())
        lines[number] = f"{hashlib.sha256(words).hexdigest()[:16]} {mask} {score} d{head_dims} keys {case.keys()}"
    kept = golden_bits()
    if renews:
        kept = {of: those for of, those in kept.items() if of.split()[-1] != arch} | {title: list(lines.values())}
        GOLDEN.write_text("".join(f"{line}\n" for of in sorted(kept) for line in [of, *kept[of]]))
    if all(of.split()[-1] != arch for of in kept):
        pytest.skip(f"no bits of {arch} are kept")
    assert title in kept, f"the file has {sorted(kept)}: renew it"
    assert lines == {number: kept[title][number] for number in lines}, f"bits moved, and are still called {title}"
