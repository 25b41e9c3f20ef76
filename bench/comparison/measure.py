"""The way of one problem: inputs, reference, each contender prepared and checked, then all correct ones timed."""

import math
import time
import traceback

from . import timing
from .backward import BackwardReference, make_backward_inputs
from .cells import BackwardCell
from .contender import Unsupported, first_line
from .inputs import make_inputs
from .records import FAILED, UNSUPPORTED, WRONG, result, timed
from .reference import Reference
from .report import OURS
from .serving import Requests
from .serving_inputs import make_request_inputs


class DeviceLost(Exception):
    """The GPU does not answer after an error of a contender: nothing can be measured in this process any more."""


def prepare(cell, inputs, reference, contender):
    """(runner, fields): a checked Runner and what is known of it; or (None, a finished result). In mode "replay" the
    Runner replays a graph, and what the replay wrote is checked."""
    begin = time.monotonic()
    try:
        runner = contender.preparing(cell)(cell, inputs)
        if cell.mode == "replay":
            runner = timing.replayed(runner)
        with runner.context():
            output = runner.call()
        check = reference.check(output)
    except Unsupported as reason:
        return None, result(cell, contender.name, UNSUPPORTED, str(reason))
    except Exception as error:  # whatever a peer raises is reported, the other contenders go on
        if contender.name == OURS:
            traceback.print_exc()
        return None, result(cell, contender.name, FAILED, f"{type(error).__name__}: {first_line(error)}")
    errors = {name: value if math.isfinite(value) else str(value) for name, value in vars(check).items()}
    fields = dict(prepare_s=round(time.monotonic() - begin, 2), check=errors, detail=runner.detail)
    if not check.correct:
        reason = (f"error {check.error:.2g} (at most {check.limit:.2g}), "
                  f"of a row {check.row_error:.2g} (at most {check.row_limit:.2g})")
        return None, result(cell, contender.name, WRONG, reason, **fields)
    return runner, fields


def sample(cell, runners, seconds):
    """({name: fields of records.timed}, {name: reason}): samples in the cell's mode, and who has none."""
    if cell.mode in ("cold", "replay"):
        return {name: dict(us=us) for name, us in timing.sample_cold(runners, seconds).items()}, {}
    if cell.mode == "eager":
        host, wall = timing.sample_eager(runners, seconds)
        return {name: dict(us=wall[name], host_us=host[name]) for name in runners}, {}
    graphs, refused = {}, {}
    for name, runner in runners.items():
        try:
            graphs[name], _ = timing.capture(runner)
        except Exception as error:  # as above
            refused[name] = f"cannot be captured: {first_line(error)}"
    if cell.mode == "graph":
        host, wall = timing.sample_graphs(graphs, seconds)
        return {name: dict(us=wall[name], host_us=host[name]) for name in graphs}, refused
    us, host = timing.sample_sustained(runners, graphs)
    return {name: dict(us=us[name], host_us=host[name],
                       reason=f"called from the host: {refused[name]}" if name in refused else None)
            for name in runners}, {}


def measure(cell, contenders, seconds, seed=0, device="cuda"):
    """The results of `contenders` in `cell`, sampled for about `seconds`, in the order given. Raises DeviceLost."""
    import torch

    torch.set_float32_matmul_precision("highest")
    with torch.no_grad():
        return _measure(cell, contenders, seconds, seed, device)


def _measure(cell, contenders, seconds, seed, device):
    kinds = ((Requests, make_request_inputs, Reference), (BackwardCell, make_backward_inputs, BackwardReference))
    make, refer = next((rest for kind, *rest in kinds if isinstance(cell, kind)), (make_inputs, Reference))
    inputs = make(cell, device, seed)
    reference = refer(cell, inputs)
    runners, fields, results = {}, {}, {}
    for contender in contenders:
        runner, known = prepare(cell, inputs, reference, contender)
        if runner is None:
            results[contender.name] = known
            _ask_device(device, contender)
        else:
            runners[contender.name], fields[contender.name] = runner, known
    del reference
    if runners:
        times, refused = sample(cell, runners, seconds)
        for name, reason in refused.items():
            results[name] = result(cell, name, FAILED, reason)
        for name, samples in times.items():
            results[name] = timed(cell, name, **samples, **fields[name])
    return [results[contender.name] for contender in contenders]


def _ask_device(device, contender):
    """Raises DeviceLost when the GPU does not answer after a failure of `contender`."""
    import torch

    if device == "cuda":
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise DeviceLost(f"the GPU does not answer after an error in {contender.label}: "
                             f"{first_line(error)}") from None
