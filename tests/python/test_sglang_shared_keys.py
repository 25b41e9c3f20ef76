"""jit_attention.sglang where ranks share keys out (--dcp-size), beside the whole in double precision. Ranks are threads."""

import types

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import sglang_stand_ins  # noqa: E402
import thread_group  # noqa: E402
from flash_reference import flash_exact  # noqa: E402
from test_sglang import BF16, Engine, integration, memory_pool, to_torch  # noqa: E402

if integration.cp_lse_ag_out_rs_mha is not sglang_stand_ins.cp_lse_ag_out_rs_mha:
    pytest.skip("SGLang's own groups need processes with GPUs", allow_module_level=True)

HEADS, HEAD_DIM, SLOTS = 4, 64, 160  # heads of each rank's queries; tokens of the longest request


@pytest.fixture
def device(emulated):
    return "cpu" if emulated else "cuda"


@pytest.fixture
def settings(monkeypatch):
    said = types.SimpleNamespace(enable_deterministic_inference=False, speculative_algorithm=None)
    monkeypatch.setattr(integration, "get_exec", lambda: types.SimpleNamespace(deterministic=said))
    monkeypatch.setattr(integration, "get_spec", lambda: said)

    def parallel():
        group = thread_group.of_this_thread()
        return types.SimpleNamespace(dcp_enabled=True, attn_dcp_size=group.world_size, attn_dcp_rank=group.rank_in_group,
                                     dcp_group=group)

    monkeypatch.setattr(integration, "get_parallel", parallel)
    return said


class Requests:
    """Requests of random tokens: contexts, which are prompts, and a step of new tokens."""

    def __init__(self, rng, device, ranks, heads_kv, new, context, page_size):
        self.device, self.ranks, self.heads_kv, self.page_size = device, ranks, heads_kv, page_size
        self.new, self.context = new, context
        self.lengths = [c + n for c, n in zip(context, new)]
        rows = lambda count, heads: rng.standard_normal((count, heads, HEAD_DIM)).astype(BF16)  # noqa: E731
        self.q = [rows(n, ranks * HEADS) for n in self.lengths]
        self.k, self.v = ([rows(n, heads_kv) for n in self.lengths] for _ in "kv")
        # Slots of all ranks: pages of page_size · ranks of them, the first of padding, the others in any order.
        span = page_size * ranks
        most = -(-SLOTS // span)
        self.pages = len(new) * most + 1
        order = rng.permutation(numpy.arange(1, self.pages))
        table = numpy.zeros((len(new) + 2, most * span), numpy.int32)
        for b in range(len(new)):
            table[b + 1] = (order[b * most : (b + 1) * most, None] * span + numpy.arange(span)).ravel()
        self.table = torch.from_numpy(table).to(device)

    def pool(self, dtype=torch.bfloat16):
        """A rank's, NaN in all that it does not own."""
        pool = object.__new__(memory_pool.MHATokenToKVPool)
        pool.dtype, pool.store_dtype = dtype, dtype if dtype.itemsize > 1 else torch.uint8
        size = self.pages * self.page_size, self.heads_kv, HEAD_DIM
        buffers = [torch.full(size, torch.nan, device=self.device).to(dtype) for _ in "kv"]
        pool.get_key_buffer, pool.get_value_buffer = (lambda layer_id, of=of: buffers[of] for of in (0, 1))

        def store(layer, where, k, v, dcp_kv_mask):
            for buffer, rows in zip(buffers, (k, v)):
                buffer[where.loc[dcp_kv_mask]] = rows[dcp_kv_mask].to(dtype)

        pool.set_kv_buffer = store
        return pool

    def batch(self, begins, ends, decode):
        int64 = lambda values: torch.tensor(values, dtype=torch.int64, device=self.device)  # noqa: E731
        places = [(b, i) for b in range(len(ends)) for i in range(begins[b], ends[b])]
        return types.SimpleNamespace(
            req_pool_indices=int64(range(1, len(ends) + 1)), seq_lens=int64(ends), positions=int64([i for _, i in places]),
            extend_seq_lens=None if decode else int64([n - c for c, n in zip(begins, ends)]),
            extend_prefix_lens_cpu=None if decode else list(begins), out_cache_loc_is_physical=False,
            out_cache_loc=int64([self.table[b + 1, i].item() for b, i in places]),
            forward_mode=types.SimpleNamespace(is_decode_or_idle=lambda: decode))

    def serve(self, rank, steps, dtype, sinks, fields):
        runner = types.SimpleNamespace(token_to_kv_pool=self.pool(dtype), page_size=self.page_size,
                                       req_to_token_pool=types.SimpleNamespace(req_to_token=self.table))
        backend = integration.JitAttentionBackend(runner)
        layer = Engine.layer(None, tp_k_head_num=self.heads_kv, tp_v_head_num=self.heads_kv, **fields)
        own = slice(rank * HEADS, (rank + 1) * HEADS)
        results = []
        for begins, ends, decode in steps:
            q, k, v = (to_torch(numpy.concatenate([x[c:n] for x, c, n in zip(rows, begins, ends)]), self.device)
                       for rows in ([x[:, own] for x in self.q], self.k, self.v))
            batch = self.batch(begins, ends, decode)
            backend.init_forward_metadata(batch)
            forward = backend.forward_decode if decode else backend.forward_extend
            more = {} if sinks is None else dict(sinks=torch.tensor(sinks[own], device=self.device))
            results.append(forward(q.flatten(1), k, v, layer, batch, **more).view(-1, HEADS, HEAD_DIM))
        return results

    def check(self, dtype=torch.bfloat16, sinks=None, problem=None, **fields):
        """The prompts' and the step's results, of all heads."""
        nothing = [0] * len(self.new)
        decode = all(n == 1 for n in self.new)
        steps = [(nothing, self.context, False), (self.context, self.lengths, decode)]
        parts = thread_group.run(self.ranks, lambda rank: self.serve(rank, steps, dtype, sinks, fields))
        for (begins, ends, _), *of_ranks in zip(steps, *parts):
            o, row = torch.cat(of_ranks, 1).double().cpu().numpy(), 0
            for q, k, v, c, n in zip(self.q, self.k, self.v, begins, ends):
                exact = flash_exact(q[None, c:n], k[None, :n], v[None, :n], **(problem or dict(causal=True)),
                                    **({} if sinks is None else dict(sinks=sinks)))
                exact.check(o[None, row : row + n - c])
                row += n - c


@pytest.mark.parametrize("ranks, heads_kv, new, context, page_size", [
    (2, 1, (1, 1, 1), (40, 13, 2), 16),  # decoding
    (3, 3, (1, 4, 2), (100, 7, 1), 1),  # several tokens, ranks without a key, heads of keys of all ranks
    (2, 2, (37, 5), (13, 70), 16),  # chunks of prompts
])
def test_chunks_and_decoding(rng, device, settings, ranks, heads_kv, new, context, page_size):
    Requests(rng, device, ranks, heads_kv, new, context, page_size).check()


def test_windows_softcap_and_sinks(rng, device, settings):
    sinks = rng.standard_normal(2 * HEADS).astype("float32")
    requests = Requests(rng, device, 2, 1, (3, 1), (70, 20), 16)
    requests.check(sinks=sinks, problem=dict(window_size=(24, 0), softcap=2.0), sliding_window_size=24, logit_cap=2.0)


def test_a_cache_of_fp8_and_fixed_bits(rng, device, settings):
    import ml_dtypes

    settings.enable_deterministic_inference = True
    requests = Requests(rng, device, 2, 1, (1, 1), (40, 21), 16)
    for name in "kv":
        setattr(requests, name, [x.astype(ml_dtypes.float8_e4m3fn).astype(BF16) for x in getattr(requests, name)])
    requests.check(dtype=torch.float8_e4m3fn)


LATENT, ROTATED, NOPE = 256, 64, 128
COLUMNS = LATENT + ROTATED


class SharedLatents(Requests):
    """Latents, of which SGLang's layers gather queries and merge results themselves."""

    def __init__(self, rng, device, ranks, new, context, page_size):
        super().__init__(rng, device, ranks, 1, new, context, page_size)
        rows = lambda count, heads, columns: rng.standard_normal((count, heads, columns)).astype(BF16)  # noqa: E731
        self.q = [rows(n, ranks * HEADS, COLUMNS) for n in self.lengths]
        self.k = [rows(n, 1, COLUMNS) for n in self.lengths]
        self.v = [x[..., :LATENT] for x in self.k]
        # Prompts have keys of each head.
        self.of_heads = [[rows(n, ranks * HEADS, columns) for n in self.lengths] for columns in (NOPE + ROTATED,) * 2 + (NOPE,)]

    def pool(self, rank):
        pool = object.__new__(memory_pool.MLATokenToKVPool)
        pool.dtype = pool.store_dtype = torch.bfloat16
        buffer = torch.full((self.pages * self.page_size, 1, COLUMNS), torch.nan, device=self.device).bfloat16()
        pool.kv_cache_dim, pool.get_key_buffer = COLUMNS, lambda layer_id: buffer

        def store(layer, where, k, k_rope):
            own = where.loc % self.ranks == rank
            buffer[where.loc[own] // self.ranks] = torch.cat([k, k_rope], -1)[own]

        pool.set_mla_kv_buffer = store
        return pool

    def gathered(self, begins, ends):
        """Latents before the step, then those of the step, and where those of each request are."""
        before, new = ([x[0 if part else c : c if part else n] for x, c, n in zip(self.k, begins, ends)] for part in (1, 0))
        at, places = numpy.cumsum([0, *map(len, before), *map(len, new)]), []
        for b in range(len(ends)):
            places += [*range(at[b], at[b + 1]), *range(at[len(ends) + b], at[len(ends) + b + 1])]
        int32 = lambda values: torch.tensor(values, dtype=torch.int32, device=self.device)  # noqa: E731
        return types.SimpleNamespace(dcp_kv_buffer=to_torch(numpy.concatenate(before + new), self.device),
                                     dcp_kv_indices=int32(places), dcp_kv_indptr=int32(numpy.cumsum([0, *ends]).tolist()))

    def serve(self, rank, steps, dtype, sinks, fields):
        runner = types.SimpleNamespace(token_to_kv_pool=self.pool(rank), page_size=self.page_size,
                                       req_to_token_pool=types.SimpleNamespace(req_to_token=self.table))
        backend = integration.JitAttentionBackend(runner)
        latents = dict(tp_k_head_num=1, tp_v_head_num=1, qk_head_dim=COLUMNS, v_head_dim=LATENT, scaling=0.07)
        layer = Engine.layer(None, **latents)
        of_all = Engine.layer(None, **latents | dict(tp_q_head_num=self.ranks * HEADS))
        own, group = slice(rank * HEADS, (rank + 1) * HEADS), thread_group.of_this_thread()
        results = []
        for begins, ends, decode in steps:
            of_step = lambda rows: to_torch(numpy.concatenate([x[c:n] for x, c, n in zip(rows, begins, ends)]), self.device)  # noqa: B023, E731
            batch = self.batch(begins, ends, decode)
            backend.init_forward_metadata(batch)
            q, k = of_step([x[:, own] for x in self.q]), of_step(self.k)
            parts = dict(k=k[..., :LATENT], v=k[..., :LATENT], forward_batch=batch, k_rope=k[..., LATENT:])
            if decode:
                q = group.all_gather(q.contiguous(), dim=1)
                part, lse = backend.forward_decode(q[..., :LATENT], layer=of_all, q_rope=q[..., LATENT:], **parts)
                whole = sglang_stand_ins.cp_lse_ag_out_rs_mla(part.view(-1, self.ranks * HEADS, LATENT), lse, group)
                results.append(whole.transpose(0, 1))
                continue
            batch.attn_dcp_metadata = self.gathered(begins, ends)
            o = backend.forward_extend(q[..., :LATENT], layer=layer, q_rope=q[..., LATENT:], **parts)
            results.append(o.view(-1, HEADS, LATENT))
        return results

    def prompts(self, rank):
        """Attention of requests without a context: keys of each head, which no other rank has."""
        runner = types.SimpleNamespace(token_to_kv_pool=self.pool(rank), page_size=self.page_size,
                                       req_to_token_pool=types.SimpleNamespace(req_to_token=self.table))
        backend = integration.JitAttentionBackend(runner)
        layer = Engine.layer(None, tp_k_head_num=HEADS, tp_v_head_num=HEADS, qk_head_dim=NOPE + ROTATED, v_head_dim=NOPE)
        batch = self.batch([0] * len(self.lengths), self.lengths, False)
        backend.init_forward_metadata(batch)
        own = slice(rank * HEADS, (rank + 1) * HEADS)
        q, k, v = (to_torch(numpy.concatenate([x[:, own] for x in rows]), self.device) for rows in self.of_heads)
        return backend.forward_extend(q.flatten(1), k.flatten(1), v.flatten(1), layer, batch,
                                      save_kv_cache=False).view(-1, HEADS, NOPE)


@pytest.fixture
def reads_latents():
    import jit_attention as ja

    if not ja.supports(None, head_dim=COLUMNS, head_dim_v=LATENT, values_in_keys=True):
        pytest.skip("latents of this size are read on sm_90a alone")


@pytest.mark.parametrize("ranks, new, context, page_size", [
    (2, (1, 1, 1), (40, 13, 2), 16),  # decoding behind prompts
    (3, (1, 1), (70, 1), 1),  # a rank without a latent
    (2, (37, 5), (16, 70), 16),  # chunks of prompts
])
def test_latents(rng, device, settings, reads_latents, ranks, new, context, page_size):
    requests = SharedLatents(rng, device, ranks, new, context, page_size)
    requests.check(problem=dict(causal=True, softmax_scale=0.07))
    from sglang.srt.models.deepseek_common import utils

    assert utils.FORWARD_ABSORB_CORE_ATTENTION_BACKENDS.count("jit_attention") == 1


def test_prompts_of_latents_have_keys_of_each_head(rng, device, settings):
    requests = SharedLatents(rng, device, 2, (20, 7), (0, 0), 16)
    o = torch.cat(thread_group.run(2, requests.prompts), 1).double().cpu().numpy()
    for q, k, v in zip(*requests.of_heads):
        flash_exact(q[None], k[None], v[None], causal=True, softmax_scale=HEAD_DIM**-0.5).check(o[None, : len(q)])
        o = o[len(q) :]
