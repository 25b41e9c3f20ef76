"""Arrays of the examples: PyTorch's on a GPU, NumPy's on an emulated one; and attention in double precision."""

try:
    import numpy as np

    import jit_attention as ja
except ModuleNotFoundError as error:
    raise SystemExit(f"the examples need NumPy and jit_attention ({error}): pip install numpy") from None


def random_arrays(count, *shape, seed=0):
    """So many arrays of normal numbers in fp16, where this process computes."""
    return [place(array) for array in np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float16)]


def place(array):
    if ja.devices()[0].emulated:
        return array
    try:
        import torch
    except ModuleNotFoundError:
        raise SystemExit("on a GPU the examples need PyTorch: pip install torch, or set "
                         "JIT_ATTENTION_DEVICE=emulated:sm_90a") from None  # fmt: skip
    return torch.from_numpy(array).cuda()


def fetch(array):
    """Any array as NumPy's, in double precision."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array).astype(np.float64)


def exact_attention(q, k, v, keep=True, change=lambda score: score):
    """o and lse of (batch, seqlen, heads, head_dim) in double precision.

    keep: which scores count, an array that broadcasts to (batch, heads, seqlen_q, seqlen_kv).
    change: what happens to scores.
    """
    q, k, v = fetch(q), fetch(k), fetch(v)
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = change(np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]))
    weights = np.where(keep, np.exp(scores), 0)
    sums = weights.sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights / sums, v), np.log(sums[..., 0])


def causal(seqlen_q, seqlen_kv):
    """Which scores a causal mask keeps: the last query stands at the last key."""
    return np.tri(seqlen_q, seqlen_kv, seqlen_kv - seqlen_q, dtype=bool)


def report(name, got, exact, bound=4e-3):
    """Prints how far apart two arrays are; ends the program where that is too far."""
    error = np.abs(fetch(got) - exact).max()
    print(f"{name}: largest error against double precision {error:.1e}")
    if not error <= bound:
        raise SystemExit(f"{name} is wrong: the error is above {bound}")
