"""Attention of requests on the CPU, from arguments as packages take them: what stands in for these packages in tests of
bench/compare.py."""

import math
import types

import torch


def attend(q, k, v, causal):
    """fp64 attention of one request, bottom-right: q (rows, heads_q, d), k and v (keys, heads_kv, d)."""
    k, v = (t.double().repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * q.shape[-1] ** -0.5
    if causal:
        rows, keys = torch.arange(q.shape[0])[:, None], torch.arange(k.shape[0])
        scores = scores.masked_fill(keys > rows + k.shape[0] - q.shape[0], -math.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(q.dtype)


def upcast(t, scale):
    """The values of FP8 elements; other elements are returned as they are."""
    return t if t.dtype.itemsize > 1 else t.bfloat16() * scale


def serve(q, k, v, causal, cu_seqlens_q=None, cu_seqlens_k=None, seqused_k=None, page_table=None, scale=None, **_):
    """Attention as flash-attention's arguments say it, in the shape of q."""
    q, k, v = (upcast(t, scale) for t in (q, k, v))
    count = len(q) if cu_seqlens_q is None else len(cu_seqlens_q) - 1
    rows = [q[i] for i in range(count)] if cu_seqlens_q is None else parts(q, cu_seqlens_q)
    if page_table is not None:
        size = k.shape[1]
        table = [page_table[i, :-(-int(n) // size)].long() for i, n in enumerate(seqused_k)]
        keys = [[t[pages].flatten(0, 1)[:int(n)] for t in (k, v)] for pages, n in zip(table, seqused_k)]
    elif cu_seqlens_k is not None:
        keys = list(zip(parts(k, cu_seqlens_k), parts(v, cu_seqlens_k)))
    else:
        keys = [(k[i], v[i]) for i in range(count)]
    results = [attend(one, *kv, causal) for one, kv in zip(rows, keys)]
    return torch.stack(results) if cu_seqlens_q is None else torch.cat(results)


def parts(tensor, offsets):
    return [tensor[int(begin):int(end)] for begin, end in zip(offsets, offsets[1:])]


def rotate(x, cos_sin):
    """x (tokens, heads, head_dim) with pairs (j, j + head_dim / 2) rotated, by complex numbers."""
    a, b, cos, sin = (half.double() for t in (x, cos_sin) for half in t.chunk(2, -1))
    turned = torch.complex(a, b) * torch.complex(cos, sin)
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


class FakeFlashInfer:
    """FlashInfer's wrappers over pages, as a module's functions."""

    def __init__(self):
        self.made = []
        fake = self

        class Wrapper:
            def __init__(self, workspace=None, kv_layout="NHD", device=None, **options):
                assert workspace is None or not workspace.any()
                self.layout = kv_layout
                fake.made.append((type(self).__name__, options))

            def pages(self, q, kv, cu_q, indptr, indices, lengths, causal):
                k, v = (t if self.layout == "NHD" else t.transpose(1, 2) for t in kv)
                rows, lists = parts(q, cu_q), parts(indices, indptr)
                return torch.cat([attend(one, *(t[ids.long()].flatten(0, 1)[:int(n)] for t in (k, v)), causal)
                                  for one, ids, n in zip(rows, lists, lengths)])

            def lengths(self, indptr, last_page_len, page_size):
                return (indptr[1:] - indptr[:-1] - 1) * page_size + last_page_len

        class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
            def plan(self, indptr, indices, last_page_len, heads_q, heads_kv, head_dim, page_size, **options):
                assert options["q_data_type"] == torch.bfloat16
                self.planned = indptr, indices, self.lengths(indptr, last_page_len, page_size), False
                self.kv_data_type = options["kv_data_type"]

            def run(self, q, kv, k_scale=None, v_scale=None):
                assert kv[0].dtype == kv[1].dtype == self.kv_data_type
                kv = tuple(upcast(t, scale) for t, scale in zip(kv, (k_scale, v_scale)))
                return self.pages(q, kv, torch.arange(len(q) + 1), *self.planned)

        class BatchPrefillWithPagedKVCacheWrapper(Wrapper):
            def plan(self, qo_indptr, indptr, indices, last_page_len, heads_q, heads_kv, head_dim, page_size, *,
                     causal, **options):
                self.planned = (qo_indptr, indptr, indices, self.lengths(indptr, last_page_len, page_size), causal)

            def run(self, q, kv, k_scale=None, v_scale=None):
                kv = tuple(upcast(t, scale) for t, scale in zip(kv, (k_scale, v_scale)))
                return self.pages(q, kv, *self.planned)

        class BatchPrefillWithRaggedKVCacheWrapper(Wrapper):
            def plan(self, qo_indptr, kv_indptr, *_, causal, **options):
                self.planned = qo_indptr, kv_indptr, causal

            def run(self, q, k, v):
                cu_q, cu_k, causal = self.planned
                return serve(q, k, v, causal, cu_q, cu_k)

        class BatchAttention(Wrapper):
            def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, *_, causal, **options):
                self.planned = qo_indptr, kv_indptr, kv_indices, kv_len_arr, causal

            def run(self, q, kv):
                return self.pages(q, kv, *self.planned), "lse"

        class BatchMLAPagedAttentionWrapper(Wrapper):
            def plan(self, *, qo_indptr, kv_indptr, kv_indices, kv_len_arr, causal, head_dim_ckv, head_dim_kpe,
                     sm_scale, **options):
                assert sm_scale == (head_dim_ckv + head_dim_kpe) ** -0.5
                self.planned = qo_indptr, kv_indptr, kv_indices, kv_len_arr, causal

            def run(self, *, q_nope, q_pe, ckv_cache, kpe_cache):
                keys, q = torch.cat([ckv_cache, kpe_cache], -1)[:, :, None], torch.cat([q_nope, q_pe], -1)
                return self.pages(q, (keys, ckv_cache[:, :, None]), *self.planned)

        class BatchPODWithPagedKVCacheWrapper(Wrapper):
            def plan(self, *arrays, **options):
                self.planned, self.size = (arrays[:4], arrays[4:8]), arrays[11]

            def run(self, q_p, kv_p, q_d, kv_d, causal_p):
                return tuple(self.pages(q, kv, cu_q, indptr, indices, self.lengths(indptr, last, self.size), causal)
                             for q, kv, (cu_q, indptr, indices, last), causal in
                             zip((q_p, q_d), (kv_p, kv_d), self.planned, (causal_p, False)))

        def xqa(q, k, v, page_table, seq_lens, output, workspace, semaphores, num_kv_heads, page_size, *, kv_layout,
                kv_scale=1.0):
            assert q.shape == output.shape and q.dim() == 4 and seq_lens.dtype == semaphores.dtype == torch.uint32
            assert not semaphores.view(torch.int32).any() and num_kv_heads == k.shape[2 if kv_layout == "NHD" else 1]
            k, v = (t if kv_layout == "NHD" else t.transpose(1, 2) for t in (k, v))
            lengths = seq_lens.view(torch.int32).flatten()
            output.copy_(serve(q, k, v, False, seqused_k=lengths, page_table=page_table, scale=kv_scale))

        def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache):
            cos_sin = cos_sin_cache[positions.long()][:, None]
            return tuple(rotate(t.unflatten(1, (-1, head_size)), cos_sin).flatten(1) for t in (query, key))

        def append_paged_kv_cache(key, value, batch_indices, positions, caches, indices, indptr, last_page_len):
            lengths = (indptr[1:] - indptr[:-1] - 1) * caches[0].shape[1] + last_page_len
            for row, (request, position) in enumerate(zip(batch_indices.tolist(), positions.tolist())):
                assert position < lengths[request]
                place = indices[indptr[request] + position // caches[0].shape[1]], position % caches[0].shape[1]
                caches[0][place], caches[1][place] = key[row], value[row]

        def merge_states(o, lse2):
            weights = torch.exp2(lse2.double() - lse2.double().amax(1, keepdim=True)).nan_to_num(0)[..., None]
            out = (weights * o.double()).sum(1) / weights.sum(1)
            return out.nan_to_num(0).to(o.dtype), "lse"

        def merge_state(o_a, lse_a, o_b, lse_b):
            return merge_states(torch.stack([o_a, o_b], 1), torch.stack([lse_a, lse_b], 1))

        operations = (apply_rope_with_cos_sin_cache, append_paged_kv_cache, merge_state, merge_states)
        self.functions = dict(xqa=xqa, **{one.__name__: one for one in operations},
                              **{one.__name__: one for one in Wrapper.__subclasses__()},
                              mla=types.SimpleNamespace(BatchMLAPagedAttentionWrapper=BatchMLAPagedAttentionWrapper))
