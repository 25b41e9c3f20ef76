"""One process of a group: its tensors, and times that all ranks take together."""

import contextlib
import math
import os
import statistics
import time

# NVLink multicast stays off.
SETTINGS = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
BURST_SECONDS = 0.02  # of calls behind each other
ALIGNMENT = 3e-4  # seconds between the agreement on a start and the start
WARM_UP = 3


class Rank:
    """A rank of the default group. device: "cuda", or "cpu" for an emulated device."""

    def __init__(self, device, repeats=20, seconds=1.0, warm_up=WARM_UP):
        import torch
        import torch.distributed as dist

        self.rank, self.size, self.group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
        self.repeats, self.seconds, self.warm_up = repeats, seconds, warm_up
        self.on_gpu = device == "cuda"
        self.device = torch.device(device, self.rank) if self.on_gpu else torch.device("cpu")
        if not self.on_gpu:
            torch.set_num_threads(1)
        self.mesh = dist.device_mesh.init_device_mesh(device, (self.size,), mesh_dim_names=("cp",))

    def barrier(self):
        import torch
        import torch.distributed as dist

        if self.on_gpu:
            torch.cuda.synchronize()
        dist.barrier()

    def start_together(self):
        """Returns on all ranks within some microseconds: a rank that began earlier would be timed waiting for others."""
        self.barrier()
        [begin] = self.slowest(time.perf_counter() + ALIGNMENT)  # one clock, as ranks are processes of one host
        while time.perf_counter() < begin:
            pass

    def slowest(self, *values):
        """The maximum over all ranks, of each value."""
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    def sample(self, call):
        """Seconds of the slowest rank's calls, and of this host's, as lists."""
        import torch

        for _ in range(self.warm_up):
            call()
        times, hosts, first = [], [], time.perf_counter()
        for _ in range(self.repeats):
            self.start_together()
            began = time.perf_counter()
            if self.on_gpu:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                hosts.append(time.perf_counter() - began)
                end.record()
                end.synchronize()
                seconds = start.elapsed_time(end) / 1e3
            else:
                call()
                seconds = time.perf_counter() - began
                hosts.append(seconds)
            slowest, taken = self.slowest(seconds, time.perf_counter() - first)  # so that all ranks stop together
            times.append(slowest)
            if taken > self.seconds:
                break
        return times, hosts

    def sample_burst(self, call, alone):
        """As sample's, of a call in the middle of others, which hides the host; `alone`: seconds of a call by itself."""
        count = max(1, math.ceil(BURST_SECONDS / alone))

        def burst():
            for _ in range(count):
                call()

        return [seconds / count for seconds in self.sample(burst)[0]]

    def measure(self, call):
        """Medians of sample's two lists."""
        return tuple(map(statistics.median, self.sample(call)))

    def inputs(self, cell):
        """q, k, v and do of the whole sequence, equal on all ranks."""
        import torch

        generator = torch.Generator(self.device).manual_seed(cell.seqlen_q)
        return tuple(torch.randn((1, cell.seqlen_q, heads, cell.head_dim), generator=generator, device=self.device,
                                 dtype=torch.float32).bfloat16()
                     for heads in (cell.heads_q, cell.heads_kv, cell.heads_kv, cell.heads_q))


@contextlib.contextmanager
def joined(rank, ranks, device, store, **options):
    """The Rank of this process in a group of `ranks` processes that share the file `store`."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import torch
    import torch.distributed as dist

    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    yield Rank(device, **options)
    dist.barrier()
    dist.destroy_process_group()
