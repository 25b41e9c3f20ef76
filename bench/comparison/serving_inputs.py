"""Random tensors of a batch of requests."""

import dataclasses
from dataclasses import dataclass

from .contender import Unsupported
from .inputs import Inputs
from .stored_keys import KINDS, store

FREE_PAGES = 7  # in a pool, beyond the requests'
FP8_SCALE = 1 / 16  # of q, k and v: a power of two, so that dequantized fp8 is exact in bf16


@dataclass
class RequestInputs:
    """The tensors of Requests on one device, bf16 or fp8 and normally distributed.

    q (total_q, heads_q, head_dim), contiguous. k, v: dense (batch, seqlen_k, heads_kv, head_dim[_v]); varlen
    (total_k, heads_kv, head_dim[_v]); or pages (pages, page_size, heads_kv, head_dim[_v]), whose strides say NHD or
    HND. Pages and slots that hold no key of a request hold other numbers. int32: cu_seqlens_q, cu_seqlens_k (batch +
    1), seqused_k (batch), page_table (batch, max_pages) with 0 behind a request's pages, or None. k and v of fp8
    stand for themselves times `kv_descale`, fp32 (1); q is as exact in fp8 as they are, for those who want all of one
    type. With values_in_keys v is a view of k. Of stored_keys.KINDS `stored` has k and v with their scales, of which k
    and v are the rows."""

    q: "torch.Tensor"
    k: "torch.Tensor"
    v: "torch.Tensor"
    cu_seqlens_q: "torch.Tensor"
    cu_seqlens_k: "torch.Tensor"
    seqused_k: "torch.Tensor"
    page_table: "torch.Tensor | None" = None
    kv_descale: "torch.Tensor | None" = None
    stored: "tuple | None" = None

    def upcast(self):
        """The same with k and v in bf16."""
        if self.stored is not None:
            return dataclasses.replace(self, k=self.stored[0].numbers(), v=self.stored[1].numbers(), stored=None)
        if self.kv_descale is None:
            return self
        k, v = ((t.bfloat16() * FP8_SCALE).view(t.shape) for t in (self.k, self.v))
        return dataclasses.replace(self, k=k, v=v, kv_descale=None)

    def q_in_fp8(self):
        """q / FP8_SCALE, exactly."""
        return (self.q / FP8_SCALE).to(self.k.dtype)

    def shaped_q(self, requests):
        """q in the problem's shape: (batch, seqlen_q, heads_q, head_dim) for dense queries."""
        dense = requests.q_sequences == "dense"
        return self.q.unflatten(0, (requests.batch, requests.max_seqlen_q)) if dense else self.q

    def dense(self, requests):
        """(cell, inputs): the same as a dense problem, without a copy. Raises Unsupported for differing lengths and
        paged keys."""
        if requests.q_sequences != "dense" or requests.kv_sequences != "dense":
            raise Unsupported(f"no {requests.kv_sequences} sequences")
        return requests.cell(), Inputs(self.shaped_q(requests), self.k, self.v)

    def part(self, requests, begin, end):
        """The inputs of requests.part(begin, end), for paged keys."""
        rows = slice(sum(requests.seqlens_q[:begin]), sum(requests.seqlens_q[:end]))
        cu_q, cu_k = (cu[begin:end + 1] - cu[begin] for cu in (self.cu_seqlens_q, self.cu_seqlens_k))
        return RequestInputs(self.q[rows], self.k, self.v, cu_q, cu_k, self.seqused_k[begin:end],
                             self.page_table[begin:end], self.kv_descale, self.stored)

    def scales(self):
        """A call's scale arguments for k and v."""
        options = {}
        if self.kv_descale is not None:
            options.update(k_descale=self.kv_descale, v_descale=self.kv_descale)
        for name, stored in zip("kv", self.stored or ()):
            options["kv_dtype"] = stored.kind
            if stored.tokens is not None:
                options[f"{name}_descale"] = stored.tokens
            if stored.blocks is not None:
                options[f"{name}_block_scales"] = stored.blocks
        return options

    def keys_and_values(self, requests, request):
        """k and v of one request in bf16, (seqlen_k, heads_kv, head_dim[_v]); a copy when paged or fp8."""
        length = requests.seqlens_k[request]
        if requests.kv_sequences == "dense":
            own = self.k[request], self.v[request]
        elif requests.kv_sequences == "varlen":
            begin = sum(requests.seqlens_k[:request])
            own = self.k[begin:begin + length], self.v[begin:begin + length]
        else:
            pages = self.page_table[request, :-(-length // requests.page_size)].long()
            if self.stored is not None:
                return tuple(stored.numbers(pages).flatten(0, 1)[:length] for stored in self.stored)
            own = (t[pages].flatten(0, 1)[:length] for t in (self.k, self.v))
        return tuple(own) if self.kv_descale is None else tuple(t.bfloat16() * FP8_SCALE for t in own)

    def entries(self, requests):
        """(cell, inputs, batch entry) for each request, in the order of q's rows."""
        begin = 0
        for request, count in enumerate(requests.seqlens_q):
            q, kv = self.q[begin:begin + count], self.keys_and_values(requests, request)
            yield requests.cell(request), Inputs(*(t.unsqueeze(0) for t in (q, *kv))), 0
            begin += count


def permuted_pages(lengths, page_size, device, seed):
    """(table, pages): int32 (batch, max_pages), a random permutation of pages for each request's keys, followed by 0;
    and the number of pages, including FREE_PAGES unused ones."""
    import torch

    counts = [-(-length // page_size) for length in lengths]
    pages = sum(counts) + FREE_PAGES
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(seed))[:sum(counts)].int()
    return torch.nn.utils.rnn.pad_sequence(order.split(counts), batch_first=True).to(device).contiguous(), pages


def make_request_inputs(requests, device, seed):
    """RequestInputs of `requests` on `device`, determined by the seed."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def tensor(*shape):
        return torch.randn(*shape, device=device, dtype=torch.bfloat16, generator=generator)

    def offsets(lengths):
        return torch.tensor([0, *lengths]).cumsum(0).to(device=device, dtype=torch.int32)

    table, heads = None, requests.heads_kv
    if requests.kv_sequences == "paged":
        size = requests.page_size
        table, pages = permuted_pages(requests.seqlens_k, size, device, seed)
        nhd = requests.kv_layout == "NHD"
        shape = lambda width: (pages, size, heads, width) if nhd else (pages, heads, size, width)
        place = (lambda t: t) if nhd else (lambda t: t.transpose(1, 2))
    else:
        dense = requests.kv_sequences == "dense"
        lead = (requests.batch, requests.max_seqlen_k) if dense else (sum(requests.seqlens_k),)
        shape, place = lambda width: (*lead, heads, width), lambda t: t
    q = tensor(requests.total_q, requests.heads_q, requests.head_dim)
    used = torch.tensor(requests.seqlens_k, device=device, dtype=torch.int32)
    if requests.kv_dtype in KINDS:
        stored = tuple(store(requests.kv_dtype, shape(width), device, generator, requests.inline_scales)
                       for width in (requests.head_dim, requests.head_dim_v))
        return RequestInputs(q, stored[0].rows, stored[1].rows, offsets(requests.seqlens_q),
                             offsets(requests.seqlens_k), used, table, stored=stored)
    k = tensor(*shape(requests.head_dim))
    v = k[..., :requests.head_dim_v] if requests.values_in_keys else tensor(*shape(requests.head_dim_v))
    descale = None
    if requests.kv_dtype == "fp8_e4m3":
        q, k, v = ((t / FP8_SCALE).to(torch.float8_e4m3fn) for t in (q, k, v))
        q, descale = q.bfloat16() * FP8_SCALE, torch.full((1,), FP8_SCALE, device=device)
    k, v = place(k), place(v)
    return RequestInputs(q, k, v, offsets(requests.seqlens_q), offsets(requests.seqlens_k), used, table, descale)
