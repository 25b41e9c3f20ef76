"""Attention over processes inside of what PyTorch has: `torch.compile`, DTensors, SDPA in a context, load balancers."""

import jit_attention as ja
import numpy
import pytest
from rank_processes import Ranks, inputs, plain, whole

torch = pytest.importorskip("torch", reason="needs PyTorch")
jt = pytest.importorskip("jit_attention.torch")
if not ja.devices()[0].emulated:
    pytest.skip("ranks of these tests are emulated devices", allow_module_level=True)

CAUSAL = ja.mask.causal()
SIZES = 2, 2, 32  # heads of queries and keys, head dim


@pytest.fixture(scope="module")
def two():
    ranks = Ranks(2)
    yield ranks
    ranks.close()


def compiled_step(rank, seed, sizes, placement):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    q, k, v, do, _ = inputs(seed, *sizes)
    q, k, v, do = (placement.shard(x, 1, rank) for x in (q, k, v, do))
    q, k, v = (x.requires_grad_() for x in (q, k, v))

    def step(q, k, v, placement):
        return ja.distributed.attention(2 * q, k, v, placement=placement, mask=CAUSAL, method="gather") + 1

    eager = step(q, k, v, placement)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="under torch.compile make it before"):
        compiled(q, k, v, None)
    mesh = init_device_mesh("cpu", (2,))
    o = compiled(*(DTensor.from_local(x.detach(), mesh, [Shard(1)]) for x in (q, k, v)), placement)
    assert list(o.placements) == [Shard(1)] and torch.equal(o.to_local(), eager)
    o = compiled(q, k, v, placement)
    found = torch.autograd.grad(o, (q, k, v), do)
    return torch.equal(o, eager), [torch.equal(a, b) for a, b in zip(found, torch.autograd.grad(eager, (q, k, v), do))]


def test_one_operator_under_compile(two, rng):
    placement = ja.distributed.balance(CAUSAL, seqlen=64, ranks=2, granule=16)
    for equal, gradients in two.run(compiled_step, int(rng.integers(2**31)), (64, *SIZES), placement):
        assert equal and all(gradients)


def of_dtensors(rank, seed, sizes, placement, layout):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("cp",))
    q, k, v, _, _ = inputs(seed, *sizes)
    rows = 1 if layout == "BSHD" else 2
    shards = [placement.shard(x, 1, rank) for x in (q, k, v)]
    shards = [x if layout == "BSHD" else x.transpose(1, 2).contiguous() for x in shards]
    q, k, v = (DTensor.from_local(x, mesh, [Shard(rows)]).requires_grad_() for x in shards)
    o, lse = ja.distributed.attention(q, k, v, placement=placement, mask=CAUSAL, return_lse=True, layout=layout)
    o.to_local().float().sum().backward()
    gradient = plain(q.grad.to_local())
    wrong = [refused(q.redistribute(mesh, [Shard(3)]), k, v, placement=placement)]
    sinks = distribute_tensor(torch.zeros(2), mesh, [Replicate()]).requires_grad_()
    with_sinks = ja.distributed.attention(q, k, v, placement=placement, mask=CAUSAL, sinks=sinks, layout=layout)
    with_sinks.to_local().float().sum().backward()
    assert with_sinks.shape == o.shape and sinks.grad.full_tensor().isfinite().all()
    wrong.append(refused(q, k, v, placement=placement, sinks=sinks.detach().redistribute(mesh, [Shard(0)]), layout=layout))
    uneven = distribute_tensor(torch.zeros(1, 77, 2, 32).bfloat16(), mesh, [Shard(1)])
    wrong.append(refused(uneven, uneven, uneven))
    return tuple(o.shape), list(o.placements) == [Shard(rows)], plain(o.to_local()), gradient, wrong


def refused(*arguments, **options):
    """The error of a call about its arguments."""
    with pytest.raises(ja.InvalidArgumentError) as error:
        ja.distributed.attention(*arguments, **options)
    return str(error.value)


@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
def test_dtensors_in_and_out(two, rng, layout):
    seed = int(rng.integers(2**31))
    placement = ja.distributed.balance(CAUSAL, seqlen=64, ranks=2, granule=16, mode="zigzag")
    results = two.run(of_dtensors, seed, (64, *SIZES), placement, layout)
    rows = 1 if layout == "BSHD" else 2
    q, k, v, _, _ = inputs(seed, 64, *SIZES)
    q.requires_grad_()
    o = jt.attention(q, k, v, mask=CAUSAL)
    o.float().sum().backward()
    for i, expected in ((2, o), (3, q.grad)):
        found = whole(placement, [result[i] for result in results], rows)
        found = found if layout == "BSHD" else found.transpose(0, 2, 1, 3)
        assert numpy.abs(found - plain(expected)).max() < 2e-2
    for shape, sharded, _, _, (of_q, of_sinks, of_rows) in results:
        assert shape[rows] == 64 and sharded and "must be [Shard" in of_q
        assert of_sinks.startswith("sinks: is a DTensor") and "redistribute it to Replicate()" in of_sinks
        assert of_rows.startswith("placement: is None, and 77 rows cannot be 2 parts")


def in_context(rank, seed, sizes, placement, method):
    q, k, v, _, _ = (x.transpose(1, 2).contiguous() for x in inputs(seed, *sizes))
    tokens = torch.arange(placement.seqlen)[None]
    with ja.distributed.context_parallel(placement=placement, buffers=[q, k, v, tokens], buffer_seq_dims=[2, 2, 2, 1],
                                         method=method):
        o = jt.scaled_dot_product_attention(q, k, v, is_causal=True)
        positions = tokens[0].tolist()
    unsharded = ja.distributed.unshard(o, 2, placement=placement)
    return plain(unsharded), positions == placement.positions(rank).tolist(), q.shape[2], tokens.shape[1]


@pytest.mark.parametrize("method", ["auto", "ring"])
def test_models_inside_of_a_context(two, rng, method):
    seed = int(rng.integers(2**31))
    placement = ja.distributed.balance(ja.mask.causal("top_left"), seqlen=77, ranks=2, granule=16)
    q, k, v, _, _ = (x.transpose(1, 2).contiguous() for x in inputs(seed, 77, *SIZES))
    expected = plain(jt.scaled_dot_product_attention(q, k, v, is_causal=True))
    for o, are_positions, rows, tokens in two.run(in_context, seed, (77, *SIZES), placement, method):
        assert are_positions and rows == tokens == 77
        assert numpy.abs(o - expected).max() < 2e-2


def logits_of(tokens, positions=None, context=None):
    import transformers

    jt.register_with_transformers()
    torch.manual_seed(3)
    config = transformers.MistralConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=1, head_dim=32, sliding_window=20)
    model = transformers.MistralForCausalLM._from_config(config, dtype=torch.bfloat16, attn_implementation="jit_attention")
    if context is None:
        return model(tokens, position_ids=positions, use_cache=False).logits
    with context:
        logits = model(tokens, position_ids=positions, use_cache=False).logits
        logits.float().square().sum().backward()
    return logits, model.model.layers[0].self_attn.k_proj.weight.grad


def model_in_context(rank, seed, placement):
    tokens = torch.randint(64, (1, placement.seqlen), generator=torch.Generator().manual_seed(seed))
    positions = torch.cat([torch.arange(length) for length in placement.documents])[None]
    context = ja.distributed.context_parallel(placement=placement, buffers=[tokens, positions], buffer_seq_dims=[1, 1])
    logits, gradient = logits_of(tokens, positions, context)
    return plain(ja.distributed.unshard(logits.detach(), 1, placement=placement)), bool(gradient.isfinite().all())


def test_a_model_of_transformers_with_packed_windows(two, rng):
    """Windows stay windows, and packed sequences stay apart."""
    pytest.importorskip("transformers", reason="needs Transformers")
    seed = int(rng.integers(2**31))
    mask = ja.mask.sliding_window(19, 0)
    placement = ja.distributed.balance(mask, seqlen=90, ranks=2, granule=16, documents=[50, 40])
    tokens = torch.randint(64, (1, 90), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        expected = plain(torch.cat([logits_of(part) for part in tokens.split([50, 40], 1)], 1))
    for logits, is_finite in two.run(model_in_context, seed, placement):
        assert is_finite
        assert numpy.abs(logits - expected).max() < 3e-2 * max(1, numpy.abs(expected).max())


def balanced_by_torch(rank, placement):
    """Whether PyTorch's context parallelism gives this rank the placement's rows, and the whole back."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import _context_parallel as cp

    mesh, balancer = init_device_mesh("cpu", (2,)), jt.LoadBalancer(placement)
    whole = torch.randn(1, 2, placement.seqlen, 8, generator=torch.Generator().manual_seed(1))
    (own,) = cp._context_parallel_shard(mesh, [whole.clone()], [2], balancer)
    (back,) = cp.context_parallel_unshard(mesh, [own], [2], balancer)
    return torch.equal(own, placement.shard(whole, 2, rank)) and torch.equal(back, whole)


@pytest.mark.parametrize("mode", ["balanced", "zigzag", "striped"])
def test_pytorchs_context_parallelism_takes_a_placement(two, mode):
    assert all(two.run(balanced_by_torch, ja.distributed.balance(CAUSAL, seqlen=512, ranks=2, granule=32, mode=mode)))


def test_a_load_balancer_of_torch():
    placement = ja.distributed.balance(CAUSAL, seqlen=512, ranks=4, granule=32)
    balancer = jt.LoadBalancer(placement)
    indices, restore = balancer._generate_indices(), balancer._generate_indices(restore=True)
    assert indices[0, placement.rows(0) :][: placement.rows(1)].tolist() == placement.positions(1).tolist()
    assert torch.equal(indices[0][restore[0]], torch.arange(512))
    with pytest.raises(ja.InvalidArgumentError, match="PyTorch's shards are equal"):
        jt.LoadBalancer(ja.distributed.balance(CAUSAL, seqlen=500, ranks=4, granule=32))


def test_placements_of_a_mode_by_name(two, rng):
    seed = int(rng.integers(2**31))
    results = {}
    for mode in ("zigzag", None):
        placement = ja.distributed.balance(CAUSAL, seqlen=64, ranks=2, granule=16, mode=mode or "contiguous")
        found = two.run(compute_named, seed, placement, mode)
        results[mode] = whole(placement, found, 1)
    assert numpy.abs(results["zigzag"] - results[None]).max() < 2e-2


def compute_named(rank, seed, placement, mode):
    q, k, v, _, _ = inputs(seed, 64, *SIZES)
    q, k, v = (placement.shard(x, 1, rank) for x in (q, k, v))
    return plain(ja.distributed.attention(q, k, v, placement=mode, mask=CAUSAL))
