"""Trains the small transformer of train_sums.py with sequences spread over two ranks, beside one rank.

    python examples/distributed_training.py
    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/distributed_training.py --steps 3 --seqlen 48 --width 32 --layers 1

Starts a process for each rank: two GPUs with NCCL, or processes with gloo and an emulated device each. A placement says
which rank has which bytes of each row of the batch. All layers but attention compute on a rank's own bytes; attention
sees the whole sequence, with its mask and its learned score at positions of the whole. Both runs begin with the same
weights and see the same text.
"""

import argparse
import os
import random
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    import torch.nn.functional as F

    import jit_attention as ja
except ModuleNotFoundError as error:
    raise SystemExit(f"distributed_training.py needs PyTorch and jit_attention ({error}): pip install torch") from None

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from train_sums import MASK, Model, distance_score, packed_sums  # noqa: E402


def losses_of(rank, ranks, device, steps, batch, seqlen, width, heads, layers, rate):
    """The loss of each step, which is that of all ranks together."""
    torch.manual_seed(0)
    model = Model(width, heads, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    group = dist.group.WORLD
    # Sums are short: a rank needs few keys of others, though it copies what a causal mask alone would want.
    placement = ja.distributed.balance(ja.mask.causal(), seqlen=seqlen, group=group, granule=16)
    tables = {block.table for block in model.blocks}

    def attend(q, k, v, sums, table):
        return ja.distributed.attention(q, k, v, group=group, placement=placement, mask=MASK,
                                        score=distance_score(table.shape[1]), tensors={"sums": sums, "table": table})

    source, losses = random.Random(1), []
    for _ in range(steps):
        text, sums = (x.to(device) for x in packed_sums(source, batch, seqlen + 1))
        wanted = torch.where(sums[:, 1:] == sums[:, :-1], text[:, 1:], -100)
        own_text, own_wanted = (placement.shard(x, 1) for x in (text[:, :-1], wanted))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(own_text, sums[:, :-1].contiguous(), attend)  # masks read whole tensors
        loss = F.cross_entropy(logits.float().flatten(0, 1), own_wanted.flatten(), reduction="sum") / (wanted >= 0).sum()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            if parameter not in tables:  # attention has summed over ranks what its score reads
                dist.all_reduce(parameter.grad)
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
    return losses


def process(rank, ranks, folder, backend, sizes):
    """One rank; rank 0 leaves the losses in a file."""
    if backend == "nccl":
        torch.cuda.set_device(rank)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    dist.init_process_group(backend, init_method=f"file://{folder}/store{ranks}", rank=rank, world_size=ranks)
    losses = losses_of(rank, ranks, device, **sizes)
    if rank == 0:
        torch.save(losses, f"{folder}/losses{ranks}")
    dist.barrier()
    dist.destroy_process_group()


def train(ranks=2, steps=100, batch=8, seqlen=256, width=128, heads=4, layers=2, rate=2e-3):
    """The losses of one rank and of several."""
    on_gpus = torch.cuda.is_available() and not ja.devices()[0].emulated
    if on_gpus and torch.cuda.device_count() < ranks:
        raise SystemExit(f"{ranks} ranks need as many GPUs, and there are {torch.cuda.device_count()}; or set "
                         "JIT_ATTENTION_DEVICE=emulated:sm_90a")
    sizes = dict(steps=steps, batch=batch, seqlen=seqlen, width=width, heads=heads, layers=layers, rate=rate)
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, ranks):
            multiprocessing.spawn(process, (count, folder, "nccl" if on_gpus else "gloo", sizes), count)
        return torch.load(f"{folder}/losses1"), torch.load(f"{folder}/losses{ranks}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in dict(ranks=2, steps=100, batch=8, seqlen=256, width=128, heads=4, layers=2).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{value} if not given")
    options = vars(parser.parse_args())
    one, several = train(**options)
    print(f"step  one rank  {options['ranks']} ranks")
    for step in sorted({*range(0, len(one), max(1, len(one) // 10)), len(one) - 1}):
        print(f"{step:4}  {one[step]:8.4f}  {several[step]:7.4f}")


if __name__ == "__main__":
    main()
