"""Calls over a group that were made before: what the host leaves out, and what makes it look again."""

import jit_attention as ja
import pytest
from rank_processes import Ranks

torch = pytest.importorskip("torch", reason="needs PyTorch")
import torch.distributed as dist  # noqa: E402
from jit_attention.distributed import arrive, arrive_again, groups, operator, problem  # noqa: E402

if not ja.devices()[0].emulated:
    pytest.skip("ranks of these tests are emulated devices", allow_module_level=True)
CAUSAL = ja.mask.causal()
PLACEMENT = ja.distributed.balance(CAUSAL, seqlen=256, ranks=2)


class Exchange:
    """Notes what is asked of it; halves of memory take turns."""

    def __init__(self, memory):
        self.memory, self.asked, self.begun = memory.data_ptr(), [], 0

    def begin(self, k, v, stream):
        self.asked.append(("begin", k, v, stream))
        self.begun += 1
        at = self.memory + 65536 * (self.begun % 2)
        return at, at + 16, at + 2048, 1

    def send(self):
        self.asked.append("send")

    def end(self, stream):
        self.asked.append("end")

    def fault(self, stream):
        return "of a rank"

    def set_timeout(self, seconds):
        self.asked.append(seconds)


@pytest.fixture
def made(monkeypatch):
    """A call by "arrive" with stand-ins for the exchange and kernels: (compute, what was asked, control, state)."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    control = groups.Control(dist.group.WORLD)
    monkeypatch.setitem(groups._controls, dist.group.WORLD, control)
    control.size = 2
    monkeypatch.setattr(groups.Control, "_compare", lambda *of_call: None)
    monkeypatch.setattr(groups.Control, "_texts", lambda control, what, text, timeout: [text] * 2)
    monkeypatch.setattr(arrive, "_stream", lambda device: 7)
    monkeypatch.setattr(arrive, "_refusal", lambda of_call: "")
    monkeypatch.setattr(arrive._core, "device_of", lambda tensor, name: type("Device", (), dict(arch="sm_90a")))
    memory = torch.zeros(1 << 18, dtype=torch.uint8)
    exchange = Exchange(memory)

    def begin_anew(workspace, of_call, sizes):
        workspace.shared.memory, workspace.shared.exchange, workspace.shared.timeout = memory, exchange, of_call.timeout
        workspace.shared.life = next(arrive._lives)

    monkeypatch.setattr(arrive._Workspace, "begin_anew", begin_anew)
    given = []
    monkeypatch.setattr(problem, "_attention", lambda q, k, v, **options: given.append((q, k, v, options)) or ("o", "lse"))
    call = operator.Call(CAUSAL, None, (), None, control.group, PLACEMENT, "arrive", 0.0, False, 5.0, {})
    yield call, exchange, given, control
    dist.destroy_process_group()


def tensors():
    q = torch.randn(1, 128, 2, 64).bfloat16()
    return q, q[:, :, :1].contiguous(), q[:, :, 1:].contiguous()


def test_a_repeated_call_is_the_one_before_it(made, monkeypatch):
    call, exchange, given, control = made
    for _ in range(4):
        operator.compute_directly(call, *tensors())
    known = call.kinds["forward", False]
    runs = []
    real = type(known.run).__call__
    monkeypatch.setattr(arrive_again.Repeated, "__call__", lambda run, *of_call: runs.append(found := real(run, *of_call)) or found)
    for _ in range(3):
        q, k, v = tensors()
        assert operator.compute_directly(call, q, k, v) == ("o", "lse")
        assert given[-1][0] is q and exchange.asked[-2:] == [
            ("begin", (k.data_ptr(), 128 * 64), (v.data_ptr(), 128 * 64), 7), "end"]
        before, now = given[1][3], given[-1][3]  # the second call's, by the longer way
        assert set(now) == set(before) and all(now[name] is before[name] for name in before if name != "tensors")
        assert given[-1][1].data_ptr() == given[-3][1].data_ptr() != given[-2][1].data_ptr(), "halves take turns"
        assert now["tensors"]["key_arrivals"].data_ptr() == given[-1][1].data_ptr() + 2048
    assert runs == [("o", "lse")] * 3 and control.calls == 7 and control.fields["pass"] == "forward"
    workspace = known.run.workspace  # arguments stand beside the memory that they are views of, and go with it
    assert len(workspace.shared.arguments) == 2
    # A tensor whose rows TMA cannot read is copied, and the copy lives until keys are on their way.
    odd = torch.zeros(1, 128, 1, 72, dtype=torch.bfloat16)[..., 4:68]
    operator.compute_directly(call, q, odd, v)
    assert runs[-1] == ("o", "lse") and exchange.asked[-2][1][0] != odd.data_ptr()


def test_what_changes_is_seen(made, monkeypatch):
    call, exchange, given, control = made
    runs = []
    real = arrive_again.Repeated.__call__
    monkeypatch.setattr(arrive_again.Repeated, "__call__", lambda run, *of_call: runs.append(found := real(run, *of_call)) or found)
    compute = lambda: operator.compute_directly(call, *tensors())
    for _ in range(3):
        compute()
    assert runs == [("o", "lse")]
    (workspace,) = arrive._workspaces[control].values()
    workspace.reset(5.0)
    compute(), compute()
    assert runs[1:] == [None, ("o", "lse")]
    workspace.shared.life = next(arrive._lives)  # as by a call of other sizes
    compute(), compute()
    assert runs[3:] == [None, ("o", "lse")]
    workspace.shared.timeout = 9.0
    compute(), compute()
    assert runs[5:] == [None, ("o", "lse")] and exchange.asked.count(5.0) == 1
    torch.use_deterministic_algorithms(True)
    try:
        compute()
        assert len(runs) == 7 and control.fields["deterministic"] == "deterministic True", "another kind"
    finally:
        torch.use_deterministic_algorithms(False)
    calls = control.calls
    workspace._broken.value = 1
    with pytest.raises(ja.PeerTimeoutError, match="of a rank"):
        compute()
    with pytest.raises(ja.PeerTimeoutError, match="left in the middle of a call"):
        compute()
    assert control.calls == calls + 1 and runs[7:] == [None]  # then the group is refused by the run, or before it


def test_repeated_calls_beside_graphs(made, monkeypatch):
    """What graphs hold serves repeated calls, too, beside calls of other kinds and after a reset."""
    call, exchange, given, control = made
    runs = []
    real = arrive_again.Repeated.__call__
    monkeypatch.setattr(arrive_again.Repeated, "__call__", lambda run, *of_call: runs.append(found := real(run, *of_call)) or found)
    monkeypatch.setattr(Exchange, "reset", lambda exchange, stream: None, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    compute = lambda: operator.compute_directly(call, *tensors())
    for _ in range(3):
        compute()
    (workspace,) = arrive._workspaces[control].values()
    with monkeypatch.context() as within:
        within.setattr(arrive, "is_captured", lambda tensor: True)
        within.setattr(arrive_again, "is_captured", lambda tensor: True)
        call.kinds["forward", False].run = None
        compute()
    (held,) = workspace.kept.values()
    assert held is workspace.shared and call.kinds["forward", False].run is None, "captured calls are made in full"
    compute(), compute()
    assert runs[1:] == [("o", "lse")] and call.kinds["forward", False].run.shared is held
    workspace.shared, workspace._of = arrive._Shared(workspace.device), None  # as by a call of other sizes
    workspace.reset(5.0)
    compute()
    assert runs[2:] == [("o", "lse")]


def test_a_repeated_call_that_fails_leaves_as_any_other(made, monkeypatch):
    call, exchange, given, control = made
    for _ in range(3):
        operator.compute_directly(call, *tensors())

    def fail(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(problem, "_attention", fail)
    with pytest.raises(KeyboardInterrupt):
        operator.compute_directly(call, *tensors())
    assert exchange.asked[-1] == "end" and "this rank failed" in control.broken
    with pytest.raises(ja.PeerTimeoutError, match="this rank failed"):
        operator.compute_directly(call, *tensors())


def test_ranks_of_several_hosts_need_a_mesh(made, monkeypatch):
    call, exchange, given, control = made
    monkeypatch.setattr(groups.Control, "_texts", lambda control, what, text, timeout: ["a, sm_90a", "b, sm_90a"])
    for _ in range(2):
        with pytest.raises(ja.InvalidArgumentError, match=r'group: its ranks are on 2 hosts \(a, b\).*DeviceMesh of two dimensions'
                                                          r'.*or method="gather"'):
            operator.compute_directly(call, *tensors())
    assert not exchange.asked and not control.broken


def test_auto_gathers_over_several_hosts(made, monkeypatch, recwarn):
    """Nobody asked for "arrive" there."""
    call, exchange, given, control = made
    gathered = []
    monkeypatch.setattr(groups.Control, "_texts", lambda control, what, text, timeout: ["a, sm_90a", "b, sm_90a"])
    monkeypatch.setattr(arrive.gather, "forward", lambda problem: gathered.append(problem) or (problem.q, problem.q[..., 0]))
    call = call._replace(method="auto", kinds={})
    for _ in range(3):
        operator.compute_directly(call, *tensors())
    assert len(gathered) == 3 and not exchange.asked and not control.broken and not recwarn.list


def test_arrive_gathers_over_gpus_of_two_kinds(made, monkeypatch, recwarn):
    call, exchange, given, control = made
    gathered = []
    monkeypatch.setattr(groups.Control, "_texts", lambda control, what, text, timeout: ["a, sm_90a", "a, sm_80"])
    monkeypatch.setattr(arrive.gather, "forward", lambda problem: gathered.append(problem) or (problem.q, problem.q[..., 0]))
    for _ in range(2):
        operator.compute_directly(call, *tensors())
    assert len(gathered) == 2 and not exchange.asked and not control.broken
    assert "ranks on GPUs of one kind (a, sm_80; a, sm_90a)" in str(recwarn.list[0].message)


def known_and_anew(rank):
    """Whether results of known calls are those of calls that are checked; shapes, strides, masks, types and groups change."""
    import contextlib

    from jit_attention.distributed import repeated

    asked = []
    find = repeated.find
    repeated.find = lambda *of_key: asked.append(found := find(*of_key)) or found
    generator = torch.Generator().manual_seed(3)
    placements = [ja.distributed.balance(CAUSAL, seqlen=seqlen, ranks=2, granule=16) for seqlen in (64, 96)]
    window = ja.mask.sliding_window(9, 0)
    said = []

    def call(placement, q, k, v, around=contextlib.nullcontext, **options):
        options = dict(mask=CAUSAL, method="gather") | options
        with around():
            first = [ja.distributed.attention(q, k, v, placement=placement, return_lse=True, **options) for _ in range(2)]
        was_known = asked[-1] is not None if asked else False
        kept = dict(repeated._known)  # calls of other masks, groups and shapes find theirs
        repeated._known.clear()
        with around():
            anew = ja.distributed.attention(q, k, v, placement=placement, return_lse=True, **options)
        repeated._known.update(kept)
        same = all(torch.equal(a, b) for found in first for a, b in zip(found, anew))
        said.append((same, was_known))

    for placement in placements[::-1]:
        rows = placement.rows(rank)
        make = lambda heads, *more: torch.randn((1, rows, heads, 32, *more), generator=generator).bfloat16()
        q, k, v = make(4), make(2), make(2)
        call(placement, q, k, v)
    for options in (dict(mask=window), dict(group=dist.new_group()), dict(softmax_scale=0.5), dict(method="heads"),
                    dict(method="auto"), dict(timeout=20.0)):
        call(placement, q, k, v, **options)
    call(placement, *(x.half() for x in (q, k, v)))
    call(placement, q, k, make(2, 2)[..., 1])
    call(placement, q.float(), k.float(), v.float(), around=lambda: torch.autocast("cpu", torch.bfloat16))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    do = make(4)
    of_gradients = []
    for _ in range(3):
        o = ja.distributed.attention(*leaves, placement=placement, mask=CAUSAL, method="gather")
        of_gradients.append(torch.autograd.grad(o, leaves, do))
    repeated._known.clear()
    o = ja.distributed.attention(*leaves, placement=placement, mask=CAUSAL, method="gather")
    of_gradients.append(torch.autograd.grad(o, leaves, do))
    said.append((all(torch.equal(a, b) for one in of_gradients for a, b in zip(one, of_gradients[0])), True))
    refused = ""
    ja.distributed.attention(q, k, v, placement=placement, mask=CAUSAL, method="gather")
    try:  # an argument that only one rank changes is still a difference of kinds
        ja.distributed.attention(q, k, v, placement=placement, mask=ja.mask.sliding_window(5, 0) if rank else CAUSAL, method="gather", timeout=5.0)
    except ja.RankMismatchError as error:
        refused = str(error)
    return said, refused


def test_known_calls_have_the_bits_of_others():
    ranks = Ranks(2)
    try:
        for said, refused in ranks.run(known_and_anew):
            assert all(same for same, _ in said)
            known = [was_known for _, was_known in said]
            assert known == [True] * 9 + [False] * 2 + [True], "columns apart, and autocast, are checked at each call"
            assert refused.startswith("mask: differs among ranks")
    finally:
        ranks.close()
