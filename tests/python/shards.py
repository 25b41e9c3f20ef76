"""Parts of whole sequences as ranks have them, and attention of a part in double precision."""

from dataclasses import dataclass

import numpy

NO_ROW = 2**31 - 1


def table(pieces, count=None):
    """int32 (pieces, 4) of pieces (row, position, run, stride); unused ones follow."""
    rows = [*pieces, *[(NO_ROW, 0, 1, 1)] * ((count or len(pieces)) - len(pieces))]
    return numpy.array(rows, numpy.int32).reshape(-1, 4)


def contiguous(begin, length):
    return [(0, begin, max(length, 1), max(length, 1))], length


def zigzag(rank, ranks, length):
    """Chunk `rank` from either end of 2 * ranks."""
    size = -(-length // (2 * ranks))
    first = min(rank * size, length), min((rank + 1) * size, length)
    last = min((2 * ranks - 1 - rank) * size, length), min((2 * ranks - rank) * size, length)
    pieces, rows = [], 0
    for begin, end in (first, last):
        if end > begin:
            pieces.append((rows, begin, end - begin, end - begin))
            rows += end - begin
    return pieces or [(0, 0, 1, 1)], rows


def striped(rank, ranks, run, length):
    positions = [p for p in range(length) if p // run % ranks == rank]
    return [(0, rank * run, run, ranks * run)], len(positions)


def granules(rng, length):
    """Pieces of any kind anywhere."""
    pieces, rows, position = [], 0, int(rng.integers(0, 9))
    while position < length:
        run = int(rng.integers(1, 40))
        stride = run + int(rng.integers(0, 30)) * int(rng.integers(0, 2))
        repeats = int(rng.integers(1, 4))
        own = [position + i // run * stride + i % run for i in range(run * repeats)]
        own = [p for p in own if p < length]
        pieces.append((rows, position, run, stride))
        rows += len(own)
        position = own[-1] + 1 + int(rng.integers(0, 50))
    return pieces or [(0, 0, 1, 1)], rows


def any_part(rng, length):
    kind = rng.integers(0, 5)
    ranks = int(rng.integers(1, 5))
    rank = int(rng.integers(0, ranks))
    if kind == 0:
        return zigzag(rank, ranks, length)
    if kind == 1:
        return striped(rank, ranks, int(rng.choice([1, 16, 64])), length)
    if kind == 2:
        begin = int(rng.integers(0, length + 1))
        return contiguous(begin, int(rng.integers(0, length - begin + 1)))
    return granules(rng, length)


def positions(pieces, rows):
    """Where rows stand."""
    result = numpy.zeros(rows, numpy.int64)
    for number, (row, position, run, stride) in enumerate(pieces):
        end = pieces[number + 1][0] if number + 1 < len(pieces) else rows
        i = numpy.arange(max(end - row, 0))
        result[row:end] = (position + i // run * stride + i % run)[: max(min(end, rows) - row, 0)]
    return result


@dataclass
class Attention:
    """Attention of one batch entry and its gradients in double precision, (rows, heads, head_dim)."""

    o: numpy.ndarray
    lse: numpy.ndarray
    dq: numpy.ndarray
    dk: numpy.ndarray
    dv: numpy.ndarray
    #: derivatives with respect to scores as the softmax sees them, (heads, queries, keys)
    ds: numpy.ndarray

    def check(self, o=None, lse=None, gradients=(), *, tolerance=0.02):
        """Errors of 16-bit arithmetic, as shares of the largest magnitude where that is above 1."""
        found = {"o": (o, self.o)} | dict(zip(("dq", "dk", "dv"), zip(gradients, (self.dq, self.dk, self.dv))))
        for name, (result, exact) in found.items():
            if result is None:
                continue
            assert result.shape == exact.shape and not numpy.isnan(result).any(), name
            error = numpy.abs(result - exact).max(initial=0) / max(1, numpy.abs(exact).max(initial=0))
            assert error <= tolerance, f"{name} has error {error}"
        if lse is not None:
            seen = numpy.isfinite(self.lse)
            assert numpy.array_equal(numpy.isfinite(lse), seen) and not numpy.isnan(lse).any()
            assert numpy.abs(lse[seen] - self.lse[seen]).max(initial=0) < 2e-3


def attend(q, k, v, do, keep, score=None, weights=1.0):
    """Attention of q and do (m, heads, d), k and v (n, heads_kv, d). `keep` broadcasts to (heads, m, n); `score` makes
    scores and their derivatives of scores; probabilities count `weights` times, as dropout has it."""
    q, k, v, do = (numpy.asarray(x).astype(numpy.float64) for x in (q, k, v, do))
    heads_kv, ratio, scale = k.shape[1], q.shape[1] // k.shape[1], q.shape[-1] ** -0.5
    ks, vs = (numpy.repeat(x, ratio, 1) for x in (k, v))
    s, slope = scale * numpy.einsum("mhd,nhd->hmn", q, ks), 1.0
    if score is not None:
        s, slope = score(s)
    s = numpy.where(keep, s, -numpy.inf)
    top = s.max(-1, initial=-numpy.inf, keepdims=True)
    top = numpy.where(numpy.isfinite(top), top, 0)
    p = numpy.exp(s - top)
    total = p.sum(-1, keepdims=True)
    p = p / numpy.where(total > 0, total, 1)
    with numpy.errstate(divide="ignore"):
        lse = (numpy.log(total) + top)[..., 0]
    o = numpy.einsum("hmn,nhd->mhd", p * weights, vs)
    dp = weights * numpy.einsum("mhd,nhd->hmn", do, vs)
    ds = p * (dp - (do * o).sum(-1).T[..., None])
    raw = ds * slope * scale

    def per_kv_head(x):
        return x.reshape(x.shape[0], heads_kv, ratio, x.shape[-1]).sum(2)

    return Attention(o, lse, numpy.einsum("hmn,nhd->mhd", raw, ks), per_kv_head(numpy.einsum("hmn,mhd->nhd", raw, q)),
                     per_kv_head(numpy.einsum("hmn,mhd->nhd", p * weights, do)), ds)
