"""Peers of the package FlashInfer: its wrappers, BatchAttention, POD-Attention and XQA. plan(), which engines call once
for all layers, is called beforehand, untimed."""

import dataclasses
from dataclasses import dataclass

from .chosen_peers import FlashInferOfChosen
from .contender import Contender, Runner, Unsupported, import_failure, missing, package_version
from .flashinfer_operations import FlashInferOperations
from .flashinfer_sparse import of_blocks
from .fp8_suites import COARSER, as_fp8, quantized
from .serving_inputs import FP8_SCALE
from .sparse_suites import LEFT_WINDOWS, SPARSE_MASKS
from .timing import fastest

WORKSPACE_BYTES = 512 << 20
PAGE = 16  # page size for dense caches, whose keys become consecutive pages


def workspace(device, size=WORKSPACE_BYTES):
    import torch

    return torch.zeros(size, dtype=torch.uint8, device=device)


@dataclass
class Pages:
    """Keys in pages for FlashInfer: k and v in `layout`, the table of each request's pages (batch, max_pages), and the
    same as offsets into a list, with the number of keys in each last page."""

    k: "torch.Tensor"
    v: "torch.Tensor"
    layout: str
    size: int
    table: "torch.Tensor"
    indptr: "torch.Tensor"
    indices: "torch.Tensor"
    last_page_len: "torch.Tensor"


def pages_of(requests, inputs):
    """The Pages of requests; a dense cache's are its own memory, in order. Raises Unsupported where there are none."""
    import torch

    device = inputs.q.device
    if requests.kv_sequences == "paged":
        size, table, layout = requests.page_size, inputs.page_table, requests.kv_layout
        k, v = (t if layout == "NHD" else t.transpose(1, 2) for t in (inputs.k, inputs.v))
    elif requests.kv_sequences == "dense" and requests.max_seqlen_k % PAGE == 0:
        size, layout, count = PAGE, "NHD", requests.max_seqlen_k // PAGE
        table = torch.arange(requests.batch * count, device=device, dtype=torch.int32).view(requests.batch, count)
        k, v = (t.view(requests.batch * count, PAGE, *t.shape[2:]) for t in (inputs.k, inputs.v))
    else:
        raise Unsupported(f"{requests.kv_sequences} keys are no whole pages of {PAGE}")
    counts = [-(-length // size) for length in requests.seqlens_k]
    indptr = torch.tensor([0, *counts]).cumsum(0).to(device=device, dtype=torch.int32)
    indices = torch.cat([row[:count] for row, count in zip(table, counts)])
    last = torch.tensor([(length - 1) % size + 1 for length in requests.seqlens_k], device=device, dtype=torch.int32)
    return Pages(k, v, layout, size, table, indptr, indices, last)


def scales_of(inputs):
    """run()'s scale arguments for fp8 keys and values, as host numbers."""
    return {} if inputs.kv_descale is None else dict(k_scale=FP8_SCALE, v_scale=FP8_SCALE)


def planned_decode(requests, inputs, pages, table=False, **options):
    """A call of a BatchDecodeWithPagedKVCacheWrapper created with `options`; table: whether its plan gets the page
    table."""
    import flashinfer

    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(inputs.q.device), pages.layout, **options)
    wrapper.plan(pages.indptr, pages.indices, pages.last_page_len, requests.heads_q, requests.heads_kv,
                 requests.head_dim, pages.size, q_data_type=inputs.q.dtype, kv_data_type=inputs.k.dtype,
                 **(dict(block_tables=pages.table) if table else {}))
    scales = scales_of(inputs)
    return lambda: wrapper.run(inputs.q, (pages.k, pages.v), **scales)


class _OfFlashInfer(Contender):
    HEAD_DIMS = ((64, 64), (128, 128), (256, 256))

    def absent(self):
        return missing("flashinfer") or import_failure("flashinfer")

    def version(self):
        return package_version("flashinfer-python", "flashinfer")

    def refuse_head_dims(self, problem):
        if (problem.head_dim, problem.head_dim_v) not in self.HEAD_DIMS:
            raise Unsupported(f"no head_dim {problem.head_dim}/{problem.head_dim_v}")

    def refuse_without_pages(self, requests):
        self.refuse_head_dims(requests)
        if requests.kv_sequences != "paged":
            raise Unsupported("measured over pages only")


class FlashInfer(FlashInferOfChosen, FlashInferOperations, _OfFlashInfer):
    """FlashInfer's wrappers for decode and prefill, varlen and over pages, and its operations."""

    name, label, color = "flashinfer", "FlashInfer", "#a05a9c"
    kv_dtypes = ("bf16", "fp8_e4m3")
    reads_values_in_keys = True
    scaling = "a scale for each head of q and each KV head"
    left_out = dict(fp8="it compiles for minutes for each head_dim")
    HEAD_DIMS = (*_OfFlashInfer.HEAD_DIMS, (192, 128))

    def make_sparse(self, cell, inputs):
        """Blocks alone by the sparse wrappers; other masks by make()."""
        if cell.mask != "blocks":
            return self.make(cell, inputs)
        self.refuse_head_dims(cell)
        return of_blocks(cell, inputs, workspace)

    def make(self, cell, inputs):
        import torch

        self.refuse_head_dims(cell)
        q, k, v = inputs.packed()
        if "document" in cell.mask:
            offsets_q = offsets_kv = inputs.document_offsets
        else:
            steps = torch.arange(cell.batch + 1, device=q.device, dtype=torch.int32)
            offsets_q, offsets_kv = steps * cell.seqlen_q, steps * cell.seqlen_kv
        options = dict(causal=cell.mask in ("causal", "causal_document", *LEFT_WINDOWS))
        if cell.mask in LEFT_WINDOWS:
            options["window_left"] = cell.window
        elif cell.mask in ("prefix", *SPARSE_MASKS):
            rows = torch.arange(cell.seqlen_q, device=q.device)[:, None]
            keep = inputs.keep(cell, 0, 0, rows, torch.arange(cell.seqlen_kv, device=q.device)[None])
            options["custom_mask"] = keep.flatten().repeat(cell.batch)
        if cell.score == "softcap":
            options["logits_soft_cap"] = cell.softcap
        elif cell.score == "alibi":
            options["pos_encoding_mode"] = "ALIBI"
        return self.prefill(q, k, v, offsets_q, offsets_kv, cell, options)

    def make_fp8(self, cell, inputs):
        import torch

        ones = [torch.ones(heads, device=inputs.q.device) for heads in (cell.heads_q, cell.heads_kv, cell.heads_kv)]
        return dataclasses.replace(self.prefill_fp8(cell, as_fp8(inputs), ones), coarser=COARSER)

    def make_quantized(self, cell, inputs):
        if cell.batch != 1:
            raise Unsupported("its scales of heads are those of all batch entries")
        made = [quantized(t, t.shape[2]) for t in (inputs.q, inputs.k, inputs.v)]
        return self.prefill_fp8(cell, [tensor for tensor, _ in made], [scales[0] for _, scales in made])

    def prefill_fp8(self, cell, tensors, scales):
        """A Runner of FlashInfer's FlashAttention-3 fp8 build: e4m3 q, k and v in the cell's shapes, bf16 o."""
        import flashinfer
        import torch

        if cell.head_dim != cell.head_dim_v or (cell.head_dim, cell.head_dim) not in self.HEAD_DIMS:
            raise Unsupported(f"no head_dim {cell.head_dim}/{cell.head_dim_v}")
        if cell.mask not in ("none", "causal"):
            raise Unsupported(f"no {cell.mask} mask")
        q, k, v = (t.flatten(0, 1) for t in tensors)
        steps = torch.arange(cell.batch + 1, device=q.device, dtype=torch.int32)
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(q.device), "NHD", backend="fa3")
        wrapper.plan(steps * cell.seqlen_q, steps * cell.seqlen_kv, cell.heads_q, cell.heads_kv, cell.head_dim,
                     cell.head_dim_v, causal=cell.mask == "causal", q_data_type=q.dtype, kv_data_type=k.dtype,
                     o_data_type=torch.bfloat16)
        call = lambda: wrapper.run(q, k, v, *scales).view(cell.output_shape())
        call()
        return Runner(call, detail=dict(call="BatchPrefillWithRaggedKVCacheWrapper", backend="fa3",
                                        plan="made beforehand"))

    def prefill(self, q, k, v, offsets_q, offsets_kv, problem, options):
        """A Runner for packed sequences."""
        import flashinfer

        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(q.device), "NHD")
        wrapper.plan(offsets_q, offsets_kv, problem.heads_q, problem.heads_kv, problem.head_dim, problem.head_dim_v,
                     q_data_type=q.dtype, kv_data_type=q.dtype, **options)

        def call():
            return wrapper.run(q, k, v).view(problem.output_shape())

        call()
        return Runner(call, detail=dict(call="BatchPrefillWithRaggedKVCacheWrapper", plan="made beforehand"))

    def serve(self, requests, inputs):
        if requests.values_in_keys:
            return self.latents(requests, inputs)
        self.refuse_head_dims(requests)
        if requests.max_seqlen_q == 1:
            return self.decode(requests, inputs)
        if requests.kv_sequences == "paged":
            return self.paged_prefill(requests, inputs)
        k, v = (t.view(-1, *t.shape[-2:]) for t in (inputs.k, inputs.v))
        return self.prefill(inputs.q, k, v, inputs.cu_seqlens_q, inputs.cu_seqlens_k, requests,
                            dict(causal=requests.mask == "causal"))

    def latents(self, requests, inputs):
        """FlashInfer's MLA wrapper, which takes value columns and the others separately: views of one cache."""
        import flashinfer

        width, (pages, calls) = requests.head_dim_v, (pages_of(requests, inputs), {})
        (q, q_rope), (k, k_rope) = ((t[..., :width], t[..., width:]) for t in (inputs.q, pages.k[:, :, 0]))
        for backend in ("fa2", "fa3"):
            wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace(inputs.q.device), backend=backend)
            wrapper.plan(qo_indptr=inputs.cu_seqlens_q, kv_indptr=pages.indptr, kv_indices=pages.indices,
                         kv_len_arr=inputs.seqused_k, num_heads=requests.heads_q, head_dim_ckv=width,
                         head_dim_kpe=requests.head_dim - width, page_size=pages.size,
                         causal=requests.mask == "causal", sm_scale=requests.head_dim ** -0.5,
                         q_data_type=inputs.q.dtype, kv_data_type=inputs.k.dtype)
            calls[backend] = Runner(lambda wrapper=wrapper: wrapper.run(q_nope=q, q_pe=q_rope, ckv_cache=k,
                                                                        kpe_cache=k_rope))
        backend, runner, refused = fastest(calls)
        return Runner(runner.call, detail=dict(call="BatchMLAPagedAttentionWrapper", backend=backend,
                                               plan="made beforehand", **(dict(refused=refused) if refused else {})))

    def decode(self, requests, inputs):
        pages = pages_of(requests, inputs)
        cores = (True,) if requests.gqa_ratio >= 4 else (True, False)
        calls = {use: Runner(planned_decode(requests, inputs, pages, use_tensor_cores=use)) for use in cores}
        use, runner, _ = fastest(calls)
        return Runner(runner.call, detail=dict(call="BatchDecodeWithPagedKVCacheWrapper", use_tensor_cores=use,
                                               plan="made beforehand"))

    def paged_prefill(self, requests, inputs):
        import flashinfer

        pages, calls, scales = pages_of(requests, inputs), {}, scales_of(inputs)
        for backend in ("fa2", "fa3"):
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(inputs.q.device), pages.layout,
                                                                     backend=backend)
            wrapper.plan(inputs.cu_seqlens_q, pages.indptr, pages.indices, pages.last_page_len, requests.heads_q,
                         requests.heads_kv, requests.head_dim, pages.size, head_dim_vo=requests.head_dim_v,
                         causal=requests.mask == "causal", q_data_type=inputs.q.dtype, kv_data_type=inputs.k.dtype)
            calls[backend] = Runner(lambda wrapper=wrapper: wrapper.run(inputs.q, (pages.k, pages.v), **scales))
        backend, runner, refused = fastest(calls)
        return Runner(runner.call, detail=dict(call="BatchPrefillWithPagedKVCacheWrapper", backend=backend,
                                               plan="made beforehand", **(dict(refused=refused) if refused else {})))


class BatchAttention(_OfFlashInfer):
    """FlashInfer's single persistent kernel for prefill and decode."""

    name, label, color = "batch_attention", "FlashInfer BatchAttention", "#c98fc6"

    def serve(self, requests, inputs):
        import flashinfer

        self.refuse_without_pages(requests)
        pages = pages_of(requests, inputs)
        wrapper = flashinfer.BatchAttention(kv_layout=pages.layout, device=str(inputs.q.device))
        wrapper.plan(inputs.cu_seqlens_q, pages.indptr, pages.indices, inputs.seqused_k, requests.heads_q,
                     requests.heads_kv, requests.head_dim, requests.head_dim_v, pages.size,
                     causal=requests.mask == "causal", q_data_type=inputs.q.dtype, kv_data_type=inputs.q.dtype)

        def call():
            return wrapper.run(inputs.q, (pages.k, pages.v))[0]

        call()
        return Runner(call, detail=dict(plan="made beforehand"))


class Pod(_OfFlashInfer):
    """FlashInfer's POD-Attention: a prefill batch and a decode batch share the SMs in one kernel."""

    name, label, color = "pod", "FlashInfer POD", "#6d3a6a"

    def serve(self, requests, inputs):
        import flashinfer

        self.refuse_without_pages(requests)
        split, end = requests.prefills, requests.batch
        if not 0 < split < end or requests.mask != "causal":
            raise Unsupported("only for causal prefill and decodes together")
        queries, caches, plan = [], [], []
        for part in ((0, split), (split, end)):
            these = inputs.part(requests, *part)
            pages = pages_of(requests.part(*part), these)
            queries.append(these.q)
            caches.append((pages.k, pages.v))
            plan += [these.cu_seqlens_q, pages.indptr, pages.indices, pages.last_page_len]
        wrapper = flashinfer.BatchPODWithPagedKVCacheWrapper(workspace(inputs.q.device), pages.layout)
        wrapper.plan(*plan, requests.heads_q, requests.heads_kv, requests.head_dim, pages.size,
                     q_data_type=inputs.q.dtype, kv_data_type=inputs.q.dtype)

        def call():
            return tuple(wrapper.run(queries[0], caches[0], queries[1], caches[1], causal_p=True))

        call()
        return Runner(call, detail=dict(plan="made beforehand"))


class Xqa(_OfFlashInfer):
    """TensorRT-LLM's decode kernel in FlashInfer's build: one query per request, pages of 16 to 128."""

    name, label, color = "xqa", "XQA", "#7a8b3a"
    kv_dtypes = ("bf16", "fp8_e4m3")
    FP8_COARSER = 16  # multiplies in e4m3, with 4 bits fewer than bf16
    PAGES = (16, 32, 64, 128)
    SEMAPHORE_BYTES = 8 << 20  # zero before each call, and zeroed by it

    def serve(self, requests, inputs):
        import flashinfer
        import torch

        if requests.max_seqlen_q > 1:
            raise Unsupported("measured with one query a request only")
        if requests.head_dim != requests.head_dim_v or requests.head_dim % 16:
            raise Unsupported(f"no head_dim {requests.head_dim}/{requests.head_dim_v}")
        pages = pages_of(requests, inputs)
        if pages.size not in self.PAGES:
            raise Unsupported(f"no pages of {pages.size}")
        device = inputs.q.device
        semaphores = workspace(device, self.SEMAPHORE_BYTES).view(torch.uint32)
        scratch, out = workspace(device), torch.empty_like(inputs.q)
        lengths = inputs.seqused_k.view(torch.uint32).unsqueeze(1)
        is_fp8 = inputs.kv_descale is not None
        scales = dict(kv_scale=FP8_SCALE) if is_fp8 else {}

        def call():
            flashinfer.xqa(inputs.q.unsqueeze(1), pages.k, pages.v, pages.table, lengths, out.unsqueeze(1), scratch,
                           semaphores, requests.heads_kv, pages.size, kv_layout=pages.layout, **scales)
            return out

        call()
        return Runner(call, coarser=self.FP8_COARSER if is_fp8 else 1)
