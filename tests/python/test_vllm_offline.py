"""A server with a pack never compiles: random steps of jit_attention.vllm, with stand-ins of vLLM's classes."""

import json
import subprocess
import sys

import pytest
from seeded import SEED, takes_all

pytest.importorskip("torch", reason="needs PyTorch")

MODEL = dict(model_type="llama", num_attention_heads=4, num_key_value_heads=2, head_dim=64, hidden_size=256,
             num_hidden_layers=2, max_position_embeddings=512, torch_dtype="bfloat16")  # fmt: skip
STEPS, LAUNCHED = 10_000, 100  # an emulated device takes long for each launch

SERVE = """
import types
import numpy, torch, vllm_stand_ins
vllm_stand_ins.install()
import jit_attention as ja
import jit_attention.vllm as plugin
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends import registry

ja.use_device("emulated:sm_90a")
plugin.register()
Backend = registry.AttentionBackendEnum.CUSTOM.get_class()
config = types.SimpleNamespace(compilation_config=types.SimpleNamespace(cudagraph_num_of_warmups=0))
builder = Backend.get_builder_cls()(None, ["layer"], config, torch.device("cpu"))
impl = Backend.get_impl_cls()(4, 64, 64**-0.5, 2)
impl.process_weights_after_loading(torch.bfloat16)
layer = types.SimpleNamespace(_k_scale=torch.tensor(1.0), _v_scale=torch.tensor(1.0))
rng = numpy.random.default_rng({seed})
longest, page, most_requests, budget = 512, 16, 16, 640
cache = torch.zeros(64, 2, page, 128, dtype=torch.bfloat16)
keys, values = cache.transpose(1, 2).split(64, dim=-1)
attention = ja.prepare(ja.AttentionSpec(head_dim=64, gqa_ratio=2, sequences_q="varlen", sequences_kv="paged",
                                        page_size=page, mask=ja.mask.causal()))

def schedule():
    "Of each step: for each request its new tokens, and how many keys it has then."
    running = []  # [prompt, tokens to make, keys so far]
    while True:
        for _ in range(rng.integers(0, 3)):
            if len(running) < most_requests:
                prompt = int(rng.integers(1, 400))
                running.append([prompt, int(rng.integers(1, longest - prompt)), 0])
        left, step = budget, []
        for request in running:
            new = min(left, request[0] - request[2] if request[2] < request[0] else 1)
            if new > 0:
                left -= new
                request[2] += new
                step.append((new, request[2]))
        running = [r for r in running if r[2] < r[0] + r[1]]
        if step:
            yield step

seen = set()
for number, step in zip(range({steps}), schedule()):
    new, lengths = zip(*step)
    rows = 1 << (len(step) - 1).bit_length()  # CUDA graphs are of few batch sizes: requests of no tokens fill them
    starts = torch.tensor(numpy.cumsum([0, *new, *[0] * (rows - len(step))]), dtype=torch.int32)
    tokens = int(starts[-1])
    table = torch.tensor(rng.integers(0, 64, (rows, longest // page)), dtype=torch.int32)
    slots = torch.tensor(rng.choice(64 * page, tokens, replace=False))
    common = CommonAttentionMetadata(
        query_start_loc=starts, query_start_loc_cpu=starts, num_reqs=rows, num_actual_tokens=tokens,
        seq_lens=torch.tensor([*lengths, *[0] * (rows - len(step))], dtype=torch.int32), max_query_len=max(new),
        max_seq_len=longest, block_table_tensor=table, slot_mapping=slots, causal=True)
    metadata = builder.build(0, common)
    q, k, v = (torch.ones(tokens, heads, 64, dtype=torch.bfloat16) for heads in (4, 2, 2))
    kernel = attention.kernel(q, keys, values, cu_seqlens_q=metadata.query_start_loc,
                              page_table=metadata.block_table, seqused_k=metadata.seq_lens)
    seen.add((kernel.name, str(kernel.config)))
    if number % ({steps} // {launched}) == 0:
        impl.do_kv_cache_update(layer, k, v, cache, metadata.slot_mapping)
        output = torch.full((tokens, 4, 64), torch.nan, dtype=torch.bfloat16)
        impl.forward(layer, q, None, None, cache, metadata, output)
        assert ((output >= 0) & (output <= 1)).all()  # averages of zeros and ones
print(len(seen))
"""


def test_every_step_of_a_server_runs_kernels_of_its_pack(run_python, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    pack = tmp_path / "model.pack"
    subprocess.run([sys.executable, "-m", "jit_attention", "warm", "--model", tmp_path, "--arch", "emulated:sm_90a",
                    "--serving", "--max-batch", "16", "-q", "--out", pack], check=True)  # fmt: skip
    steps, launched = (STEPS, LAUNCHED) if takes_all() else (STEPS // 10, LAUNCHED // 10)
    made = run_python(SERVE.format(seed=SEED, steps=steps, launched=launched), timeout=1200,
                      JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"), JIT_ATTENTION_PACK=str(pack),
                      JIT_ATTENTION_OFFLINE="1", JIT_ATTENTION_NVRTC=str(tmp_path))  # fmt: skip
    assert int(made) >= 3  # kernels; else the steps were all alike
    assert not list(tmp_path.glob("empty/**/*.bin"))
