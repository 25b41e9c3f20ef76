"""PyTorch's context parallelism: its ring over scaled_dot_product_attention, and FlexAttention after an all-gather."""

from .contender import Contender, Unsupported, missing
from .group_shards import Shards


class TorchRing(Contender):
    """Its context shards buffers and replaces the function in torch.nn.functional, which must therefore be looked up
    inside it."""

    name, label, color, backend = "torch-flash", "PyTorch, FlashAttention-2", "#4a7bb5", "FLASH_ATTENTION"

    def absent(self):
        return missing("torch")

    def version(self):
        import torch

        return torch.__version__

    def spread(self, cell, rank):
        import torch
        from torch.distributed.tensor.experimental import _context_parallel as cp
        from torch.distributed.tensor.experimental import context_parallel
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if cell.mask not in ("causal", "none"):
            raise Unsupported("its ring has causal and full masks alone")
        # Its ring needs as many KV heads as query heads.
        q, k, v, do = (x.transpose(1, 2).repeat_interleave(cell.heads_q // x.shape[2], 1).contiguous() for x in rank.inputs(cell))
        kind = getattr(SDPBackend, self.backend)
        cp._cp_options.enable_load_balance = cell.mask == "causal"  # it cannot balance full masks
        context = context_parallel(rank.mesh, buffers=[q, k, v, do], buffer_seq_dims=[2] * 4, no_restore_buffers={q, k, v, do})
        context.__enter__()

        def forward(q, k, v):
            with sdpa_kernel([kind]):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cell.mask == "causal")

        def whole(x):
            return cp.context_parallel_unshard(rank.mesh, [x.detach()], [2])[0].transpose(1, 2)

        return Shards(forward, [q, k, v], do, whole, close=lambda: context.__exit__(None, None, None))


class TorchRingCuDnn(TorchRing):
    name, label, color, backend = "torch-cudnn", "PyTorch, cuDNN", "#76b900", "CUDNN_ATTENTION"


class TorchFlex(Contender):
    """With its own load balancer."""

    name, label, color = "torch-flex", "PyTorch, FlexAttention", "#3d8c40"

    def absent(self):
        return missing("torch")

    version = TorchRing.version

    def spread(self, cell, rank):
        import torch
        from torch.distributed.tensor.experimental import _context_parallel as cp
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        seqlen = cell.seqlen_q
        ids = torch.zeros(seqlen, dtype=torch.int32, device=rank.device)
        if cell.documents_of_call:
            lengths = torch.tensor(cell.documents_of_call, device=rank.device)
            ids = torch.repeat_interleave(torch.arange(len(lengths), device=rank.device), lengths)
        window = cell.window if cell.mask == "window" else seqlen

        def mask_mod(b, h, q, k):
            seen = (ids[q] == ids[k]) & (q - k <= window)
            return seen if cell.mask == "none" else seen & (q >= k)

        block_mask = create_block_mask(mask_mod, 1, 1, seqlen, seqlen, device=rank.device.type)
        balancer = cp._PTRRLoadBalancer(block_mask, rank.size)
        q, k, v, do = (x.transpose(1, 2).contiguous() for x in rank.inputs(cell))
        q, k, v, do, block_mask = cp._context_parallel_shard(rank.mesh, [q, k, v, do, block_mask], [2] * 5, balancer)
        compiled = torch.compile(flex_attention, dynamic=False)
        name = rank.group.group_name

        def forward(q, k, v):
            k, v = cp.flex_cp_allgather(k.contiguous(), v.contiguous(), 2, name)
            return compiled(q, k, v, block_mask=block_mask, enable_gqa=cell.heads_q != cell.heads_kv)

        def whole(x):
            return cp.context_parallel_unshard(rank.mesh, [x.detach()], [2], balancer)[0].transpose(1, 2)

        return Shards(forward, [x.contiguous() for x in (q, k, v)], do.contiguous(), whole)
