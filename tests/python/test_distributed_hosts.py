"""Attention over several hosts, which are ranks of a mesh of two dimensions here, beside fp64 and one device."""

import re

import jit_attention as ja
import numpy
import pytest
import rank_processes
from rank_processes import Ranks, compute, inputs
from seeded import some
from test_distributed import CAUSAL, SIZES, TABLE, causal_keep, check, exact

SHARE = 3  # ranks take long to compile

torch = pytest.importorskip("torch", reason="needs PyTorch")
jt = pytest.importorskip("jit_attention.torch")
if not ja.devices()[0].emulated:
    pytest.skip("ranks of these tests are emulated devices", allow_module_level=True)


def enter_mesh(rank, *shape):
    from torch.distributed.device_mesh import init_device_mesh

    rank_processes.GROUP = init_device_mesh("cpu", shape)


@pytest.fixture(scope="module")
def ranks():
    ranks = Ranks(4)
    ranks.run(enter_mesh, 2, 2)
    yield ranks
    ranks.close()


def test_uneven_shards_with_sinks_and_tables(ranks, rng):
    """Gradients of all that is read, and the same bits in a second run."""
    seed, seqlen = int(rng.integers(2**31)), 205
    sinks, table = (3 + rng.standard_normal(6)).astype("float32"), rng.standard_normal(48).astype("float32")
    placement = ja.distributed.balance(CAUSAL, seqlen=seqlen, ranks=4, granule=16)
    options = dict(mask=CAUSAL, sinks=sinks, score=TABLE, tensors={"table": table}, deterministic=True)
    first, second = (ranks.run(compute, seed, (seqlen, *SIZES), placement, options, True, ["table"]) for _ in range(2))
    for a, b in zip(first, second):
        assert all(numpy.array_equal(x, y) for x, y in zip(a[:5], b[:5]))
        assert numpy.array_equal(a[5]["table"], b[5]["table"])
    leaf, of_table = (torch.from_numpy(x).double().requires_grad_() for x in (sinks, table))
    places = torch.arange(seqlen)
    bias = of_table.view(6, 8)[:, (places[:, None] - places).clamp(0, 7)][None]
    expected = exact(seed, seqlen, causal_keep(seqlen), bias=bias, sinks=leaf, leaves=[leaf, of_table])
    check(placement, first, expected, ["sinks", "table"])


def test_packed_documents_of_which_hosts_need_little(ranks, rng):
    seed, documents = int(rng.integers(2**31)), [3, 60, 0, 41, 40]
    placement = ja.distributed.balance(CAUSAL, seqlen=sum(documents), ranks=4, granule=16, documents=documents)
    ids = torch.repeat_interleave(torch.arange(5), torch.tensor(documents))
    keep = causal_keep(ids.numel()) & (ids[:, None] == ids[None])
    results = ranks.run(compute, seed, (ids.numel(), *SIZES), placement, dict(mask=CAUSAL, method="gather"))
    check(placement, results, exact(seed, ids.numel(), keep))


def test_windows_of_the_own_host_and_empty_shards(ranks, rng):
    """No query needs a key of the other host, and some rank has none."""
    seed, seqlen = int(rng.integers(2**31)), 36
    mask = ja.mask.sliding_window(0, 0)
    placement = ja.distributed.balance(mask, seqlen=seqlen, ranks=4, granule=16, mode="contiguous")
    assert 0 in [placement.rows(rank) for rank in range(4)]
    results = ranks.run(compute, seed, (seqlen, *SIZES), placement, dict(mask=mask))
    check(placement, results, exact(seed, seqlen, torch.eye(seqlen, dtype=torch.bool)))


def test_sinks_of_hosts_whose_own_keys_nobody_sees(ranks, rng):
    seed, seqlen = int(rng.integers(2**31)), 128
    mask, sinks = ja.mask.prefix(50), (3 + rng.standard_normal(6)).astype("float32")
    placement = ja.distributed.balance(mask, seqlen=seqlen, ranks=4, granule=16, mode="contiguous")
    results = ranks.run(compute, seed, (seqlen, *SIZES), placement, dict(mask=mask, sinks=sinks))
    leaf = torch.from_numpy(sinks).double().requires_grad_()
    keep = (torch.arange(seqlen) < 50).expand(seqlen, seqlen)
    check(placement, results, exact(seed, seqlen, keep, sinks=leaf, leaves=[leaf]), ["sinks"])


def test_dropout_drops_what_one_device_drops(ranks, rng):
    seed, seqlen = int(rng.integers(2**31)), 128
    state = rng.integers(2**40, size=2).astype("int64")
    placement = ja.distributed.balance(CAUSAL, seqlen=seqlen, ranks=4, granule=16, mode="zigzag")
    results = ranks.run(compute, seed, (seqlen, *SIZES), placement, dict(mask=CAUSAL, dropout_p=0.4, rng_state=state))
    q, k, v, do, dlse = inputs(seed, seqlen, *SIZES)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    o, lse = jt.attention(q, k, v, mask=CAUSAL, dropout_p=0.4, rng_state=torch.from_numpy(state), return_lse=True)
    ((o.float() * do.float()).sum() + (lse * dlse).sum()).backward()
    check(placement, results, [x.detach().float().numpy() for x in (o, lse, q.grad, k.grad, v.grad)])


def compiled(rank, seed, placement):
    """Whether a compiled call equals an eager one, and what other methods say."""
    q, k, v = (placement.shard(x, 1, rank) for x in inputs(seed, 64, *SIZES)[:3])
    call = lambda q, k, v: ja.distributed.attention(q, k, v, group=rank_processes.GROUP, placement=placement, mask=CAUSAL)  # noqa: E731
    said = []
    for method in ("ring", "heads"):
        with pytest.raises(ja.InvalidArgumentError) as refused:
            ja.distributed.attention(q, k, v, group=rank_processes.GROUP, placement=placement, method=method)
        said.append(str(refused.value))
    return torch.equal(torch.compile(call, backend="aot_eager")(q, k, v), call(q, k, v)), said


def test_compiled_calls_and_other_methods(ranks, rng):
    placement = ja.distributed.balance(CAUSAL, seqlen=64, ranks=4, granule=16)
    for is_equal, said in ranks.run(compiled, int(rng.integers(2**31)), placement):
        assert is_equal
        assert all('a mesh of 2 hosts, within which ranks gather or keys arrive; give "gather" or "arrive"' in text for text in said)


def with_keys_that_have_arrived(rank, *arguments):
    """compute, with an exchange in place of that between GPUs: needed keys of a host's ranks are there, others are wrong."""
    import torch.distributed as dist
    from jit_attention.distributed import arrive

    over, purposes = arrive.over, []

    def exchanged(problem, purpose, attend):
        placement, part = problem.placement, problem.control
        purposes.append(purpose)
        assert placement.ranks == part.size and [placement.rows(part.rank)] * 2 == [problem.k.shape[1], problem.v.shape[1]]
        wholes = []
        for x in (problem.k, problem.v):
            sent = torch.full((x.shape[0], placement.seqlen, *x.shape[2:]), 7.0)
            sent[:, : x.shape[1]] = x.float()
            shards = [torch.empty_like(sent) for _ in range(part.size)]
            dist.all_gather(shards, sent, group=part.group)
            whole = placement.unshard([shard[:, : placement.rows(other)] for other, shard in enumerate(shards)], 1)
            is_needed = torch.zeros(placement.seqlen, dtype=torch.bool)
            for begin, end in placement.needs[part.rank]:
                is_needed[begin * placement.granule: end * placement.granule] = True
            wholes.append(whole.masked_fill(~is_needed[:, None, None], 7).to(x.dtype))
        arrivals = torch.zeros(64, 4, dtype=torch.int32)  # no pieces: all keys are there
        return attend(*wholes, arrivals=arrivals)

    arrive.over = exchanged
    try:
        return compute(rank, *arguments), purposes
    finally:
        arrive.over = over


@pytest.mark.parametrize("case", some(["zigzag with sinks", "documents", "a window in stripes", "a tree"]))
def test_keys_of_a_host_that_arrive(ranks, rng, case):
    if not ja.devices()[0].arch.startswith("sm_90"):
        pytest.skip("kernels of sm_90a wait for keys")
    seed, seqlen, sinks, leaf, mask, more, tensors = int(rng.integers(2**31)), 205, None, None, CAUSAL, {}, {}
    keep = causal_keep(seqlen)
    if case == "zigzag with sinks":
        sinks = (3 + rng.standard_normal(6)).astype("float32")
        leaf, more = torch.from_numpy(sinks).double().requires_grad_(), dict(mode="zigzag")
    elif case == "documents":
        more = dict(documents=[70, 135])
        ids = torch.repeat_interleave(torch.arange(2), torch.tensor([70, 135]))
        keep = keep & (ids[:, None] == ids[None])
    elif case == "a tree":
        tree = ja.tree([61, 50, 30, 40, 24], [-1, 0, 0, 2, 2])
        tensors, mask = {"tree_ends": tree.ends[None]}, ja.mask.tree()
        more, keep = dict(tensors=tensors), keep & (torch.arange(seqlen)[:, None] < torch.from_numpy(tree.ends))
    else:
        mask, more = ja.mask.sliding_window(40, 0), dict(mode="striped")
        keep = keep & ~torch.ones(seqlen, seqlen, dtype=torch.bool).tril(-41)
    placement = ja.distributed.balance(mask, seqlen=seqlen, ranks=4, granule=16, **more)
    options = dict(mask=mask, method="arrive", tensors=tensors) | (dict(sinks=sinks) if sinks is not None else {})
    expected = exact(seed, seqlen, keep, sinks=leaf, leaves=[leaf] if leaf is not None else [])
    found = ranks.run(with_keys_that_have_arrived, seed, (seqlen, *SIZES), placement, options)
    results = [result for result, _ in found]
    check(placement, results, expected, ["sinks"] if leaf is not None else [])
    for rank, (_, purposes) in enumerate(found):
        assert set(purposes) <= {0, 1} and rank // 2 in purposes and purposes == found[rank // 2 * 2][1], "ranks of a host alike"
    by_gather = ranks.run(compute, seed, (seqlen, *SIZES), placement, options)  # these ranks reach no GPU's memory
    check(placement, by_gather, expected, ["sinks"] if leaf is not None else [])


def test_a_host_of_one_rank_each(ranks, rng):
    seed, seqlen = int(rng.integers(2**31)), 80
    ranks.run(enter_mesh, 4, 1)
    placement = ja.distributed.balance(CAUSAL, seqlen=seqlen, ranks=4, granule=16)
    results = ranks.run(compute, seed, (seqlen, *SIZES), placement, dict(mask=CAUSAL))
    check(placement, results, exact(seed, seqlen, causal_keep(seqlen)))


def test_a_dead_rank_is_named(ranks, rng):
    """The last test: the group is lost."""
    ranks.run(enter_mesh, 2, 2)
    everything = ja.mask.none()  # so that each rank needs the keys of all
    placement = ja.distributed.balance(everything, seqlen=64, ranks=4, granule=16)
    arguments = (compute, int(rng.integers(2**31)), (64, *SIZES), placement, dict(mask=everything, timeout=4.0), False)
    ranks.run(*arguments)
    ranks.kill(3)
    ranks.start(*arguments, but=(3,))
    for error, trace in ranks.results(but=(3,), seconds=60):
        # Others are named, too, that wait for it themselves.
        assert isinstance(error, ja.PeerTimeoutError) and re.search(r"ranks? (\d, )*3 ha", str(error)), trace
