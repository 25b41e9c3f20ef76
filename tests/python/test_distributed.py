"""Attention over processes, beside fp64 and beside one device."""

import jit_attention as ja
import numpy
import pytest
from rank_processes import Ranks, compute, compute_on, inputs, whole
from seeded import some

torch = pytest.importorskip("torch", reason="needs PyTorch")
jt = pytest.importorskip("jit_attention.torch")
if not ja.devices()[0].emulated:
    pytest.skip("ranks of these tests are emulated devices", allow_module_level=True)

CAUSAL = ja.mask.causal()
SIZES = 6, 3, 32  # heads of queries and keys, head dim
TABLE = ja.score.text("return score + table[h * 8 + min(max(q - k, 0), 7)];", name="distance", tensors={"table": "fp32"})


@pytest.fixture(scope="module")
def three():
    ranks = Ranks(3)
    yield ranks
    ranks.close()


def exact(seed, seqlen, keep, *, bias=None, sinks=None, sizes=SIZES, batch=1, leaves=()):
    """O, LSE and gradients in fp64, for a mask (seqlen, seqlen)."""
    q, k, v, do, dlse = (x.double() for x in inputs(seed, seqlen, *sizes, batch))
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    ratio = sizes[0] // sizes[1]
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(ratio, 2)) * sizes[2] ** -0.5
    scores = (scores if bias is None else scores + bias).masked_fill(~keep, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(batch, -1, seqlen, 1)], -1)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0)[..., None])[..., :seqlen]
    o = torch.einsum("bhqk,bkhd->bqhd", weights, v.repeat_interleave(ratio, 2))
    ((o * do).sum() + (lse.masked_fill(lse == -torch.inf, 0) * dlse).sum()).backward()
    return [x.detach().numpy() for x in (o, lse, q.grad, k.grad, v.grad, *(leaf.grad for leaf in leaves))]


def assert_near(found, expected, tolerance=1.5e-2):
    assert numpy.isfinite(found[numpy.isfinite(expected)]).all()
    both = numpy.isneginf(expected)
    assert (numpy.isneginf(found) == both).all()
    error = numpy.abs(numpy.where(both, 0, found) - numpy.where(both, 0, expected)).max(initial=0)
    assert error <= tolerance * max(1, numpy.abs(numpy.where(both, 0, expected)).max(initial=0)), error


def check(placement, results, expected, names=()):
    """Shards of all ranks against the whole in fp64."""
    for i, dim in enumerate((1, 2, 1, 1, 1)):
        assert_near(whole(placement, [result[i] for result in results], dim), expected[i])
    for name, gradient in zip(names, expected[5:]):
        for result in results:
            assert numpy.array_equal(result[5][name], results[0][5][name]), "ranks have different bits"
        assert_near(results[0][5][name], gradient)


def causal_keep(seqlen):
    return torch.ones(seqlen, seqlen, dtype=torch.bool).tril()


@pytest.mark.parametrize("method, mode", [("gather", "balanced"), ("ring", "zigzag"), ("heads", "contiguous")])
def test_causal_with_sinks_and_uneven_shards(three, rng, method, mode):
    seed, seqlen = int(rng.integers(2**31)), 205
    placement = ja.distributed.balance(CAUSAL, seqlen=seqlen, ranks=3, granule=16, mode=mode)
    assert len({placement.rows(rank) for rank in range(3)}) > 1
    sinks = rng.standard_normal(6).astype("float32")
    results = three.run(compute, seed, (seqlen, *SIZES), placement, dict(mask=CAUSAL, method=method, sinks=sinks))
    leaf = torch.from_numpy(sinks).double().requires_grad_()
    check(placement, results, exact(seed, seqlen, causal_keep(seqlen), sinks=leaf, leaves=[leaf]), ["sinks"])


@pytest.mark.parametrize("method", ["gather", "ring"])
def test_packed_documents(three, rng, method):
    seed, documents = int(rng.integers(2**31)), [3, 90, 0, 61, 40]
    placement = ja.distributed.balance(CAUSAL, seqlen=sum(documents), ranks=3, granule=16, documents=documents)
    ids = torch.repeat_interleave(torch.arange(5), torch.tensor(documents))
    keep = causal_keep(ids.numel()) & (ids[:, None] == ids[None])
    results = three.run(compute, seed, (ids.numel(), *SIZES), placement, dict(mask=CAUSAL, method=method))
    check(placement, results, exact(seed, ids.numel(), keep))


def test_gradients_of_what_scores_read_and_equal_bits(three, rng):
    """A window of both sides, a batch of two, and the same bits in a second run."""
    seed, seqlen = int(rng.integers(2**31)), 160
    mask = ja.mask.sliding_window(50, 9)
    table = rng.standard_normal(48).astype("float32")
    placement = ja.distributed.balance(mask, seqlen=seqlen, ranks=3, granule=16, mode="striped", stripe=2)
    options = dict(mask=mask, score=TABLE, tensors={"table": table}, method="gather", deterministic=True)
    sizes = (seqlen, *SIZES, 2)
    first, second = (three.run(compute, seed, sizes, placement, options, True, ["table"]) for _ in range(2))
    for a, b in zip(first, second):
        assert all(numpy.array_equal(x, y) for x, y in zip(a[:5], b[:5]))
        assert numpy.array_equal(a[5]["table"], b[5]["table"])
    places = torch.arange(seqlen)
    distance = places[:, None] - places[None]
    leaf = torch.from_numpy(table).double().requires_grad_()
    bias = leaf.view(6, 8)[:, distance.clamp(0, 7)][None]
    expected = exact(seed, seqlen, (distance <= 50) & (distance >= -9), bias=bias, batch=2, leaves=[leaf])
    check(placement, first, expected, ["table"])


@pytest.mark.parametrize("method", some(["gather", "ring", "heads"]))
def test_trees(three, rng, method):
    """A prompt with two answers, one of which branches; the placement is that of the mask's blocks."""
    seed = int(rng.integers(2**31))
    tree = ja.tree([int(n) for n in rng.integers(9, 90, 5)], [-1, 0, 0, 2, 2])
    seqlen, rows = len(tree.ends), torch.arange(len(tree.ends))
    tensors, mask = {"tree_ends": tree.ends[None]}, ja.mask.tree()
    placement = ja.distributed.balance(mask, seqlen=seqlen, ranks=3, granule=16, tensors=tensors)
    results = three.run(compute, seed, (seqlen, *SIZES), placement, dict(mask=mask, method=method, tensors=tensors))
    keep = (rows <= rows[:, None]) & (rows[:, None] < torch.from_numpy(tree.ends))
    check(placement, results, exact(seed, seqlen, keep))


@pytest.mark.parametrize("method", ["gather", "ring"])
def test_more_ranks_than_granules(three, rng, method):
    seed, seqlen = int(rng.integers(2**31)), 20
    placement = ja.distributed.balance(CAUSAL, seqlen=seqlen, ranks=3, granule=16)
    assert sorted(placement.rows(rank) for rank in range(3)) == [0, 4, 16]
    results = three.run(compute, seed, (seqlen, *SIZES), placement, dict(mask=CAUSAL, method=method))
    check(placement, results, exact(seed, seqlen, causal_keep(seqlen)))


@pytest.mark.parametrize("method", ["gather", "ring"])
def test_dropout_drops_what_one_device_drops(three, rng, method):
    seed, seqlen = int(rng.integers(2**31)), 96
    state = rng.integers(2**40, size=2).astype("int64")
    placement = ja.distributed.balance(CAUSAL, seqlen=seqlen, ranks=3, granule=16, mode="zigzag")
    options = dict(mask=CAUSAL, method=method, dropout_p=0.4, rng_state=state)
    results = three.run(compute, seed, (seqlen, *SIZES), placement, options)
    q, k, v, do, dlse = inputs(seed, seqlen, *SIZES)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    o, lse = jt.attention(q, k, v, mask=CAUSAL, dropout_p=0.4, rng_state=torch.from_numpy(state), return_lse=True)
    ((o.float() * do.float()).sum() + (lse * dlse).sum()).backward()
    check(placement, results, [x.detach().float().numpy() for x in (o, lse, q.grad, k.grad, v.grad)])


def test_one_rank_is_the_plain_call(rng, tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        q, k, v, do, _ = inputs(int(rng.integers(2**31)), 70, *SIZES)
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        o = ja.distributed.attention(q, k, v, mask=CAUSAL)
        expected = jt.attention(q, k, v, mask=CAUSAL)
        assert torch.equal(o, expected)
        gradients = torch.autograd.grad(o, (q, k, v), do)
        assert all(torch.equal(a, b) for a, b in zip(gradients, torch.autograd.grad(expected, (q, k, v), do)))
    finally:
        dist.destroy_process_group()


def test_ranks_of_mixed_architecture(rng):
    seed, placement = int(rng.integers(2**31)), ja.distributed.balance(CAUSAL, seqlen=96, ranks=2, granule=16)
    ranks = Ranks(2)
    try:
        results = ranks.run(compute_on, ["sm_90a", "sm_80"], seed, (96, *SIZES), placement, dict(mask=CAUSAL, method="gather"))
    finally:
        ranks.close()
    assert [result[-1] for result in results] == ["sm_90a", "sm_80"]
    check(placement, results, exact(seed, 96, causal_keep(96)))


def test_meshes(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        q = torch.randn(1, 32, 1, 64).bfloat16()
        of_hosts = ja.distributed.attention(q, q, q, group=init_device_mesh("cpu", (1, 1)), mask=CAUSAL)
        assert torch.equal(of_hosts, jt.attention(q, q, q, mask=CAUSAL))
        with pytest.raises(ja.InvalidArgumentError, match="is a device mesh of 3 dimensions.* or two, hosts and ranks of each"):
            ja.distributed.attention(q, q, q, group=init_device_mesh("cpu", (1, 1, 1)), mask=CAUSAL)
    finally:
        dist.destroy_process_group()


def repeated(rank, seed, placement):
    """How often calls write down what they are and reach the store, in the first call of a kind and in later ones."""
    import jit_attention.distributed.operator as operator
    from jit_attention.distributed.groups import control_of, group_of

    control, counts = control_of(group_of(None)), {"fields": 0, "texts": 0, "store": 0}

    def counted(name, function):
        def call(*arguments, **named):
            counts[name] += 1
            return function(*arguments, **named)

        return call

    class Store:
        def __init__(self, store):
            self.store = store

        def __getattr__(self, name):
            function = getattr(self.store, name)
            return function if name == "check" else counted("store", function)  # a rank that waits long looks for news

    kept = operator._fields, operator.written_problem, control.store
    operator._fields, operator.written_problem = counted("fields", kept[0]), counted("texts", kept[1])
    control.store = Store(kept[2])
    try:
        found = []
        for _ in range(3):
            compute(rank, seed, (64, *SIZES), placement, dict(mask=ja.mask.sliding_window(33, 0), method="gather"))
            found.append(dict(counts))
            counts.update(fields=0, texts=0, store=0)
        return found
    finally:
        operator._fields, operator.written_problem, control.store = kept


def test_repeated_calls_neither_write_nor_compare(three, rng):
    placement = ja.distributed.balance(CAUSAL, seqlen=64, ranks=3, granule=16)
    for first, *later in three.run(repeated, int(rng.integers(2**31)), placement):
        assert first["fields"] == first["texts"] == 2 and first["store"] > 0  # forward and backward
        assert later == [{"fields": 0, "texts": 0, "store": 0}] * 2


def arrived(rank, seed, placement):
    """Results of "arrive" and "gather", the warnings of two calls, and what failures and resets leave."""
    import warnings

    from jit_attention.distributed.groups import control_of, group_of

    sizes, found = (256, *SIZES), {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found["arrive"], _ = (compute(rank, seed, sizes, placement, dict(mask=CAUSAL, method="arrive")) for _ in range(2))
    found["said"] = [str(warning.message) for warning in said]
    found["gather"] = compute(rank, seed, sizes, placement, dict(mask=CAUSAL, method="gather"))
    ja.distributed.check()
    control = control_of(group_of(None))
    calls = control.calls
    if rank == 1:  # its kernel has waited in vain, and the others are a call ahead
        with pytest.raises(ja.PeerTimeoutError, match="rank 0 has not begun call 3"):
            control.give_up("rank 0 has not begun call 3 in time")
        with pytest.raises(ja.PeerTimeoutError, match=r"call jit_attention\.distributed\.reset on all ranks"):
            compute(rank, seed, sizes, placement, dict(mask=CAUSAL, method="gather"))
    else:
        control.calls += 1
    ja.distributed.reset(timeout=60)
    found["calls"] = control.calls - calls
    found["again"] = compute(rank, seed, sizes, placement, dict(mask=CAUSAL, method="gather"))
    return found


def test_arrive_gathers_where_memory_is_not_shared(three, rng):
    placement = ja.distributed.balance(CAUSAL, seqlen=256, ranks=3, granule=16)
    for found in three.run(arrived, int(rng.integers(2**31)), placement):
        assert len(found["said"]) == 1 and 'method: "arrive" needs GPUs' in found["said"][0]
        for method in ("gather", "again"):
            assert all(numpy.array_equal(x, y) for x, y in zip(found["arrive"][:5], found[method][:5]))
        assert found["calls"] == 1
