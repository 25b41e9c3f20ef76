"""cuDNN frontend's flex_attention: kernels in CuTe DSL for masks that are intervals of keys, forward and backward."""

from .by_autograd import ByAutograd, Forward
from .contender import Contender, Runner, Unsupported, import_failure, missing, package_version

MOST_INTERVALS = 64  # per query; plans for more compile longer than suites run


def row_intervals(keep):
    """Intervals of the keys that rows keep, as flex_attention has them: int32 (n, rows), n odd. A row sees keys from 0
    to the first number, from the second to the third, etc.; surplus intervals are empty. `keep`: bool (rows, keys)."""
    import torch

    rows, keys = keep.shape
    padded = torch.nn.functional.pad(keep.to(torch.int8), (1, 1))
    changes = padded.diff(dim=1)  # 1 where an interval begins, -1 after its end: (rows, keys + 1)
    most = int((changes == 1).sum(1).max()) if rows else 0
    if most > MOST_INTERVALS:
        raise Unsupported(f"{most} intervals of keys in a row")
    row, place = changes.nonzero(as_tuple=True)
    count = torch.bincount(row, minlength=rows)
    first = count.cumsum(0) - count
    ends = torch.full((2 * most + 1, rows), keys, dtype=torch.int32, device=keep.device)
    ends[0] = 0
    ends[1 + torch.arange(len(row), device=keep.device) - first[row], row] = place.to(torch.int32)
    return ends[2:] if most > 0 and bool((ends[1] == 0).all()) else ends  # when all begin at key 0


def mask_intervals(cell, inputs):
    """Those of a cell, int32 (1 or heads_q, n, batch * seqlen_q)."""
    import torch

    device = inputs.q.device
    heads = cell.heads_q if inputs.blocks is not None and len(inputs.blocks) > 1 else 1
    queries = torch.arange(cell.seqlen_q, device=device)[:, None]
    keys = torch.arange(cell.seqlen_kv, device=device)[None]

    def of(entry, head):
        if cell.mask == "none":
            return row_intervals(torch.ones(cell.seqlen_q, cell.seqlen_kv, dtype=torch.bool, device=device))
        keep = inputs.keep(cell, entry, head, queries, keys)
        return row_intervals(keep.expand(cell.seqlen_q, cell.seqlen_kv))

    made = [[of(entry, head) for entry in range(cell.batch)] for head in range(heads)]
    longest = max(len(one) for row in made for one in row)

    def padded(ends):
        return torch.cat([ends, ends.new_full((longest - len(ends), ends.shape[1]), cell.seqlen_kv)])

    return torch.stack([torch.cat([padded(one) for one in row], 1) for row in made]).contiguous()


class CuDnnFlex(ByAutograd, Contender):
    """The mask's plan is made beforehand, outside the times."""

    name, label, color = "cudnn-flex", "cuDNN flex_attention", "#5b8c3a"
    left_out = {suite: "a plan and a kernel of a cell take 4 to 8 s to compile" for suite in
                ("forward", "causal", "latency", "backward", "backward-causal", "training-step", "deterministic")}

    def absent(self):
        return missing("cudnn.flex_attention") or import_failure("cudnn.flex_attention")

    def version(self):
        return package_version("nvidia-cudnn-frontend")

    def attend(self, cell, inputs, with_gradients):
        """The attention function of q, k and v."""
        from cudnn.flex_attention import create_mask_plan, flex_attn_func

        if cell.score != "none":
            raise Unsupported(f"no {cell.score}")
        try:
            plan = create_mask_plan(mask_intervals(cell, inputs), inputs.q, inputs.k, inputs.v,
                                    build_backward=with_gradients)
        except ValueError as error:
            raise Unsupported(str(error).splitlines()[0]) from None
        deterministic = getattr(cell, "deterministic", False)
        return lambda q, k, v: flex_attn_func(q, k, v, mask_plan=plan, deterministic=deterministic)

    def make(self, cell, inputs):
        attend = self.attend(cell, inputs, False)
        call = lambda: attend(inputs.q, inputs.k, inputs.v)
        call()
        return Runner(call, detail=dict(call="flex_attn_func"))

    def make_sparse(self, cell, inputs):
        return self.make(cell, inputs)

    def make_tree(self, cell, inputs):
        return self.make(cell, inputs)

    def train_tree(self, cell, inputs):
        return self.train(cell, inputs)

    def forward_of(self, cell, inputs):
        return Forward(self.attend(cell, inputs, True), detail=dict(call="flex_attn_func"))
