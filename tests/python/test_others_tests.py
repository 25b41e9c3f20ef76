"""tools/others_tests on checkouts of its own: what is left out, counted, and told of failures."""

import pathlib
import subprocess
import sys

import pytest
from seeded import some

pytest.importorskip("torch", reason="needs PyTorch")

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tools/others_tests"
LATENTS = """
import pytest
import torch
from vllm.triton_utils import triton
from vllm.v1.attention.ops.flashmla import (flash_mla_with_kvcache, get_mla_metadata, get_mla_metadata_dense_fp8,
                                            is_flashmla_dense_supported)

@pytest.mark.skipif(not is_flashmla_dense_supported()[0], reason="is not there")
@pytest.mark.parametrize("b, mean_sk", [(64, 1280)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_flash_mla(b, mean_sk, dtype):
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device(torch.device("cuda:0"))
    assert (b, mean_sk) == (2, 40)
    lengths = torch.full((b,), mean_sk, dtype=torch.int32)
    if dtype == torch.float8_e4m3fn:
        get_mla_metadata_dense_fp8(lengths, 1, 1)
    q, pages = torch.randn(b, 1, 16, 576), torch.randn(b, 64, 1, 576)
    table = torch.arange(b, dtype=torch.int32)[:, None]
    out, lse = flash_mla_with_kvcache(q, pages, table, lengths, 512, *get_mla_metadata(), causal=True)
    right = torch.stack([(q[i, 0].double() @ pages[i, :mean_sk, 0].double().T * 576**-0.5).softmax(-1)
                         @ pages[i, :mean_sk, 0, :512].double() for i in range(b)])
    torch.testing.assert_close(out[:, 0].double(), right, atol=2e-2, rtol=2e-2)
    assert triton.testing.do_bench(lambda: None) and triton.cdiv(3, 2) == 2
"""
CACHES = """
import torch
from vllm.platforms import current_platform
from vllm.v1.attention.ops.int4_per_token_head import single_rht
from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash_per_token_head_quant
from vllm.v1.attention.ops.triton_unified_attention import unified_attention
from vllm.v1.kv_cache_interface import KVQuantMode, is_quantized_kv_cache

assert not current_platform.is_cpu() and current_platform.is_device_capability_family(90)

class TestIsQuantizedKvCache:
    def test_fp8_variants(self):
        assert is_quantized_kv_cache("fp8")

def test_per_token_head_negative_slot_skipped():
    assert torch.get_default_dtype() == torch.float32
    rows = torch.randn(3, 2, 64, device="cuda").bfloat16()
    cache, scales = torch.zeros(2, 16, 2, 32, dtype=torch.uint8), torch.ones(2, 16, 2)
    slots = torch.tensor([0, -1, 17])
    triton_reshape_and_cache_flash_per_token_head_quant(rows, rows, cache, cache.clone(), scales, scales.clone(), slots,
                                                        kv_quant_mode=KVQuantMode.INT4_PER_TOKEN_HEAD)
    bits = scales[1, 1].view(torch.int32)
    numbers = torch.stack([cache[1, 1] & 15, cache[1, 1] >> 4], -1).flatten(-2).float() - (bits & 15)[:, None]
    back = single_rht(numbers * (bits & -16).view(torch.float32)[:, None], inverse=True) / 64
    torch.testing.assert_close(back, rows[2].float(), atol=0.5, rtol=0.5)
    assert (cache[0, 1:] == 0).all() and (cache[1, 0] == 0).all()

def test_triton_unified_attention_per_token_head_scale():
    q, keys = torch.randn(1, 4, 64).bfloat16(), torch.randn(3, 16, 4, 64).bfloat16()
    scales = keys.float().abs().amax(-1) / 127
    stored = (keys.float() / scales[..., None]).round().to(torch.int8)
    outs = [torch.empty_like(q) for _ in range(2)]
    common = dict(cu_seqlens_q=torch.tensor([0, 1], dtype=torch.int32), max_seqlen_q=1, max_seqlen_k=40, causal=True,
                  seqused_k=torch.tensor([40], dtype=torch.int32), softmax_scale=0.125, window_size=(-1, -1), softcap=0,
                  block_table=torch.tensor([[2, 0, 1]], dtype=torch.int32))
    unified_attention(q=q, k=stored, v=stored, out=outs[0], kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD,
                      k_scale_cache=scales, v_scale_cache=scales, **common)
    unified_attention(q=q, k=keys, v=keys, out=outs[1], **common)
    torch.testing.assert_close(*outs, atol=5e-2, rtol=5e-2)
    assert not torch.equal(*outs), "equal"

def test_int8_per_token_head_raw_cache_matches_round_reference():
    assert False, "it is told"
"""
CUDNN = """
import pytest
import torch
from cudnn.sdpa.fwd.engines import engine_name
from frost_test_utils import requires_dsl, requires_pre_rubin_blackwell, select_engine
from test_utils import torch_fork_set_rng

pytestmark = requires_pre_rubin_blackwell

def run(o_gpu, bound, **options):
    import cudnn

    g = cudnn.pygraph(io_data_type=cudnn.data_type.BFLOAT16)
    nodes = {name: g.tensor_like(x) for name, x in bound.items()}
    given = {nodes[name]: x for name, x in bound.items()}
    o, lse = g.sdpa(generate_stats=True, attn_scale=0.05, **nodes, **options)
    o.set_output(True).set_dim(o_gpu.shape)
    lse_gpu = torch.full((*o_gpu.shape[:3], 1), 7.0)
    g.validate()
    g.create_execution_plans([cudnn.heur_mode.A])
    select_engine(g, engine_name())
    g.execute({**given, o: o_gpu, lse: lse_gpu}, torch.empty(g.get_workspace_size(), device="cuda"))
    return lse_gpu

@pytest.mark.parametrize("d", [512, 256])
@torch_fork_set_rng(seed=0)
def test_lengths(d):
    q, k = (torch.randn(2, n, 2, d, device="cuda").bfloat16().transpose(1, 2) for n in (20, 30))
    o = torch.full_like(q, torch.nan)
    counts = [torch.tensor(n, dtype=torch.int32).view(2, 1, 1, 1) for n in ([20, 7], [30, 11])]
    sink = torch.randn(1, 2, 1, 1)
    lse = run(o, dict(q=q, k=k, v=k, seq_len_q=counts[0], seq_len_kv=counts[1], sink_token=sink), use_causal_mask_bottom_right=True, sliding_window_length=5)
    for b, (n, m) in enumerate(zip((20, 7), (30, 11))):
        at, keys = torch.arange(n)[:, None] + m - n, torch.arange(m)
        scores = (q[b, :, :n].double() @ k[b, :, :m].double().mT * 0.05).masked_fill((keys > at) | (keys <= at - 5), -torch.inf)
        scores = torch.cat([scores, sink[0].double().expand(-1, n, -1)], -1)
        torch.testing.assert_close(o[b, :, :n].double(), scores.softmax(-1)[..., :m] @ k[b, :, :m].double(), atol=2e-2, rtol=2e-2)
        torch.testing.assert_close(lse[b, :, :n, 0].double(), scores.logsumexp(-1), atol=1e-3, rtol=1e-3)
        assert (o[b, :, n:] == 0).all() and (lse[b, :, n:] == -torch.inf).all()

@pytest.mark.parametrize("d", [512])
def test_packed(d):
    rows = torch.randn(13, 2, d).bfloat16()
    x, o = rows.as_strided((2, 2, 9, d), (0, d, 2 * d, 1)), torch.zeros_like(rows)
    begins = torch.tensor([0, 4 * 2 * d, 13 * 2 * d])
    counts = torch.tensor([4, 9], dtype=torch.int32)
    import cudnn

    g = cudnn.pygraph()
    q, n, own, out_own = g.tensor(dim=[2, 2, 9, d]), g.tensor_like(counts), g.tensor_like(begins), g.tensor_like(begins)
    q.set_ragged_offset(own)
    out, _ = g.sdpa(q=q, k=q, v=q, attn_scale=0.05, use_padding_mask=True, seq_len_q=n, seq_len_kv=n)
    out.set_output(True).set_ragged_offset(out_own)
    g.execute({q: x, n: counts, own: begins, out_own: begins, out: o.as_strided(x.shape, x.stride())}, None)
    for part, own in ((rows[:4], o[:4]), (rows[4:], o[4:])):
        part = part.double().transpose(0, 1)
        right = (part @ part.mT * 0.05).softmax(-1) @ part
        torch.testing.assert_close(own.double(), right.transpose(0, 1), atol=2e-2, rtol=2e-2)

@pytest.mark.parametrize("d_qk, d_v", [(512, 512)])
def test_of_an_adapter(d_qk, d_v):
    from cudnn.sdpa.fwd.api_dsl import SdpaFwdDslSm100

    SdpaFwdDslSm100(None).compile()

@pytest.mark.parametrize("d", [512])
def test_that_fails(d):
    assert False, "it is told"

def test_contract():
    raise AssertionError
"""


def run(suite, tmp_path, files, *arguments):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, RUNNER, suite, tmp_path, "--device", "emulated:sm_90a", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(autouse=True)
def here(emulated):
    if not emulated:
        pytest.skip("the runner names the device")


PARTS = {
    "vllm": ({"tests/kernels/attention/test_flashmla.py": LATENTS, "tests/conftest.py": "import nothing",
              "tests/quantization/here/test_per_token_kv_cache.py": CACHES},
             ["    1 FP8 latents under FP8 queries are not served", "    1 of vLLM itself",
              "3 passed, 1 failed, 1 skipped, 1 left out"]),
    "cudnn": ({"test/python/sdpa/frost/test_sdpa_fwd_dsl_sm100.py": CUDNN},
              ["    2 not of head dim 512", "    1 of cuDNN itself: cudnn.sdpa.fwd.api_dsl.SdpaFwdDslSm100",
               "2 passed, 1 failed, 1 skipped, 2 left out"]),
}  # fmt: skip


@pytest.mark.parametrize("suite", some(list(PARTS), 1))
def test_counts(tmp_path, suite):
    files, told = PARTS[suite]
    ended = run(suite, tmp_path, files, "--smaller", "32")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-3:] == told, ended.stdout
    assert "it is told" in ended.stdout


def test_a_folder_without_tests(tmp_path):
    ended = run("cudnn", tmp_path, {})
    assert ended.returncode == 2 and "give a checkout of NVIDIA/cudnn-frontend" in ended.stderr
