"""Gradients of keys that ranks return to their owners: sums in fp32, in the order of ranks, rounded once."""

import types

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
from jit_attention.distributed import exchange  # noqa: E402
from jit_attention.distributed.rows import apart, beside  # noqa: E402


def test_rows_beside_each_other_are_not_copied():
    k, v = torch.randn(2, 24, 3, 16), torch.randn(2, 24, 3, 8)
    both = beside(k, v)
    assert torch.equal(both[:, :, :48].unflatten(2, (3, 16)).transpose(0, 1), k)
    views = apart(both, k, v)
    assert all(torch.equal(x, y) for x, y in zip(views, (k, v)))
    assert beside(*views) is both
    assert beside(views[0], v) is not both and torch.equal(beside(views[0], v), both)
    assert beside(views[0][:, 1:], views[1][:, 1:]).shape == (23, 2, 72)


@pytest.mark.parametrize("mode", ["zigzag", "contiguous", "striped", "balanced"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_of_rows(monkeypatch, mode, ranks):
    """Two ranks' rows take one pass where their runs are few; other sums take one after another. Both have the same bits."""
    generator = torch.Generator().manual_seed(ranks)
    placement = ja.distributed.balance(ja.mask.causal(), seqlen=16 * 40 * ranks + 5, ranks=ranks, mode=mode, granule=16)
    wholes = [torch.randn(placement.seqlen, 1, 24, generator=generator) for _ in range(ranks)]
    routes = [exchange.route_of(placement, rank, torch.device("cpu")) for rank in range(ranks)]
    for rank, route in enumerate(routes):
        returned = [routes[other].received[rank].take(wholes[other]) for other in range(ranks) if other != rank]
        rows = torch.cat(returned)
        assert [x.shape[0] for x in returned] == [count for other, count in enumerate(route.sent_counts) if other != rank]
        monkeypatch.setattr(exchange, "start_rows", lambda *given, rows=rows: (rows, None))
        control = types.SimpleNamespace(size=ranks, rank=rank, wait=lambda *given: None)
        right = torch.zeros(route.rows, 1, 24)
        for other in range(ranks):
            if other == rank:
                right += wholes[rank][route.own.index]
            else:
                right[route.sent[other].index] += wholes[other][routes[other].received[rank].index]
        results = [torch.full((route.rows, 1, 16), torch.nan, dtype=torch.bfloat16), torch.full((route.rows, 1, 8), torch.nan)]
        exchange.return_rows(control, route, wholes[rank], [(slice(0, 16), results[0]), (slice(16, 24), results[1])], 5.0)
        assert torch.equal(results[0], right[..., :16].bfloat16()) and torch.equal(results[1], right[..., 16:])
    if mode != "balanced":
        assert (0 < len(routes[0].segments) <= exchange._FEW_RUNS) == (ranks == 2 and mode != "striped")
