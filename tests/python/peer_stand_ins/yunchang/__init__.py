"""Stands for the package of this name: its layers as bench/comparison/group_packages.py calls them, over all keys gathered."""

import torch
import torch.distributed as dist
from flash_attn import flash_attn_func  # noqa: F401
from ring_flash_attn import attend, zigzag

SIZES = []


def set_seq_parallel_pg(ulysses, ring, rank, size):
    SIZES[:] = ulysses, ring, rank, size


class UlyssesAttention:
    def __init__(self, group, attn_type):
        self.group = group

    def order(self, seqlen):
        return torch.arange(seqlen)

    def __call__(self, q, k, v, causal):
        seqlen = q.shape[1] * dist.get_world_size(self.group)
        return attend(q, k, v, self.order(seqlen), torch.zeros(seqlen), causal, self.group)


class LongContextAttention(UlyssesAttention):
    def __init__(self, ring_impl_type, attn_type):
        super().__init__(dist.group.WORLD, attn_type)
        assert ring_impl_type == "zigzag" and SIZES[:2] == [1, dist.get_world_size()]

    def order(self, seqlen):
        return zigzag(seqlen, dist.get_world_size())
