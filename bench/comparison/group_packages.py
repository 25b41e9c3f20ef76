"""ring-flash-attn and yunchang over several GPUs."""

import sys
import types

from .contender import Contender, Unsupported, missing, package_version
from .group_shards import Shards


def _shards(cell, rank, mode, forward):
    """The Shards of equally many rows on each rank."""
    import jit_attention as ja

    if cell.seqlen_q % (2 * rank.size):
        raise Unsupported(f"needs lengths of multiples of {2 * rank.size}")
    part = cell.seqlen_q // (rank.size * (2 if mode == "zigzag" else 1))
    granule = next((size for size in (128, 64, 32, 16) if part % size == 0), None)
    if granule is None:
        raise Unsupported("shards must be multiples of 16 rows here")
    placement = ja.distributed.balance(None, seqlen=cell.seqlen_q, group=rank.group, mode=mode, granule=granule)
    *tensors, do = (placement.shard(x, 1) for x in rank.inputs(cell))
    return Shards(forward, tensors, do, lambda x: ja.distributed.unshard(x, 1, placement=placement))


class _Package(Contender):
    package = ""

    def absent(self):
        return missing(self.package)

    def version(self):
        return package_version(self.package.replace("_", "-"))

    def imported(self):
        """The package, over flash-attn or PyTorch's kernels."""
        from . import flash_attn_stand_in

        flash_attn_stand_in.provide_flash_attn()
        if self.package == "ring_flash_attn" and self.package not in sys.modules:
            adapters = types.ModuleType("ring_flash_attn.adapters")  # for models of older releases of Transformers
            adapters.substitute_hf_flash_attn = adapters.update_ring_flash_attn_params = None
            flash_attn_stand_in.install(adapters)
        return __import__(self.package)


class RingZigzag(_Package):
    """A ring over both ends of the sequence."""

    package, name, label, color = "ring_flash_attn", "ring_flash_attn-zigzag", "ring-flash-attn, zigzag", "#8c6bb1"

    def spread(self, cell, rank):
        package = self.imported()
        if cell.mask != "causal":
            raise Unsupported("its zigzag ring has causal masks alone")
        return _shards(cell, rank, "zigzag",
                       lambda q, k, v: package.zigzag_ring_flash_attn_func(q, k, v, causal=True, group=rank.group))


class RingLlama3(_Package):
    """Keys gathered some heads at a time, which packed sequences take."""

    package, name, label, color = "ring_flash_attn", "ring_flash_attn-llama3", "ring-flash-attn, llama3", "#bfa3d6"

    def spread(self, cell, rank):
        import torch

        package = self.imported()
        if cell.mask not in ("causal", "none", "causal_document"):
            raise Unsupported("it has causal, full and packed masks alone here")
        bounds = torch.tensor([0, *(cell.documents_of_call or [cell.seqlen_q])], device=rank.device).cumsum(0, dtype=torch.int32)
        is_causal = cell.mask != "none"
        prepared = package.llama3_flash_attn_prepare_cu_seqlens(bounds, is_causal, rank.rank, rank.size)
        cu_q, cu_k, max_q, max_k, own_keys = prepared

        def forward(q, k, v):
            return package.llama3_flash_attn_varlen_func(q[0], k[0], v[0], cu_q, cu_k, max_q, max_k, heads_k_stride=1,
                                                         local_k_slice=own_keys, causal=is_causal, group=rank.group)[None]

        return _shards(cell, rank, "contiguous", forward)


class YunchangUlysses(_Package):
    """Its all-to-all."""

    package, name, label, color = "yunchang", "yunchang-ulysses", "yunchang, Ulysses", "#c2893d"

    def spread(self, cell, rank):
        package = self.imported()
        from yunchang.kernels import AttnType

        if cell.mask not in ("causal", "none"):
            raise Unsupported("it has causal and full masks alone here")
        layer = package.UlyssesAttention(rank.group, attn_type=AttnType.FA)
        return _shards(cell, rank, "contiguous", lambda q, k, v: layer(q, k, v, causal=cell.mask == "causal"))


class YunchangZigzag(_Package):
    """All ranks in its ring."""

    package, name, label, color = "yunchang", "yunchang-zigzag", "yunchang, zigzag", "#e0bf8f"

    def spread(self, cell, rank):
        package = self.imported()
        from yunchang.kernels import AttnType

        if cell.mask != "causal":
            raise Unsupported("its zigzag ring has causal masks alone here")
        package.set_seq_parallel_pg(1, rank.size, rank.rank, rank.size)
        layer = package.LongContextAttention(ring_impl_type="zigzag", attn_type=AttnType.FA)
        return _shards(cell, rank, "zigzag", lambda q, k, v: layer(q, k, v, causal=True))
