"""Measuring a problem: inputs, reference, preparation and check of each contender, then timing of all correct ones."""

import dataclasses
import math
import time
import traceback

from . import timing
from .backward import BackwardReference, make_backward_inputs
from .cells import BackwardCell, TrainingCell
from .chosen_inputs import CHOSEN_REFERENCES, MAKE_CHOSEN
from .contender import Unsupported, first_line
from .fp8_suites import Fp8Cell, make_fp8_inputs
from .inputs import make_inputs
from .operation_inputs import MAKE_INPUTS, REFERENCES
from .records import FAILED, UNSUPPORTED, WRONG, result, timed
from .reference import Reference
from .report import OURS
from .serving import Requests
from .serving_inputs import make_request_inputs
from .tree_suites import TreeTrainingCell

# Input functions by problem type; the default is that of dense problems without gradients.
KINDS_OF_INPUTS = {Requests: make_request_inputs, Fp8Cell: make_fp8_inputs,
                   **dict.fromkeys((BackwardCell, TrainingCell, TreeTrainingCell), make_backward_inputs),
                   **MAKE_INPUTS, **MAKE_CHOSEN}
KINDS_OF_REFERENCES = {**dict.fromkeys((BackwardCell, TrainingCell, TreeTrainingCell), BackwardReference), **REFERENCES,
                       **CHOSEN_REFERENCES}


class DeviceLost(Exception):
    """The GPU does not respond after an error: this process cannot measure any more."""


def checked(cell, runner, reference):
    """The Check of one call; in mode "replay", of a replay's output. A deterministic cell runs twice."""
    import torch

    with runner.context():
        output = runner.call()
        if cell.mode == "replay":
            timing.poison(output)
            output = runner.call()
        part = runner.checked_part(output)
        looser = {name: value for name, value, usual in
                  (("coarser", runner.coarser, 1), ("shift", runner.shift, 0)) if value != usual}
        check = reference.check(part, **looser)
        if getattr(cell, "deterministic", False):
            first = [one.clone() for one in output]
            check = dataclasses.replace(check, repeated=all(map(torch.equal, first, runner.call())))
        return check


def words(check):
    """A Check as text for people."""
    return (f"error {check.error:.2g} (at most {check.limit:.2g}), "
            f"of a row {check.row_error:.2g} (at most {check.row_limit:.2g})"
            f"{', other bits in a second call' * (check.repeated is False)}")


def prepare(cell, inputs, reference, contender):
    """(runner, fields): a checked Runner and its result fields; or (None, a finished result). In mode "replay" the
    Runner replays a graph, and the replay's output is checked."""
    begin = time.monotonic()
    try:
        contender.refuse_keys(cell)
        runner = contender.preparing(cell)(cell, inputs)
        if cell.mode == "replay":
            runner = timing.replayed(runner)
        check = checked(cell, runner, reference)
    except Unsupported as reason:
        return None, result(cell, contender.name, UNSUPPORTED, str(reason))
    except Exception as error:  # peers may raise anything; others continue
        if contender.name == OURS:
            traceback.print_exc()
        return None, result(cell, contender.name, FAILED, f"{type(error).__name__}: {first_line(error)}")
    errors = {name: value if math.isfinite(value) else str(value) for name, value in vars(check).items()
              if value is not None}
    fields = dict(prepare_s=round(time.monotonic() - begin, 2), check=errors, detail=runner.detail)
    if not check.correct:
        return None, result(cell, contender.name, WRONG, words(check), **fields)
    return runner, fields


def sample(cell, runners, seconds):
    """({name: fields of records.timed}, {name: reason}): samples in the cell's mode, and reasons for missing ones."""
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


def measure(cell, contenders, seconds, seed=0, device="cuda", begins=lambda contender: None):
    """The results of `contenders` in `cell`, sampled for about `seconds`, in the order given. begins: called with each
    name before its preparation, and with None before sampling. Raises DeviceLost."""
    import torch

    torch.set_float32_matmul_precision("highest")
    with torch.no_grad():
        return _measure(cell, contenders, seconds, seed, device, begins)


def _measure(cell, contenders, seconds, seed, device, begins):
    make = KINDS_OF_INPUTS.get(type(cell), make_inputs)
    inputs = make(cell, device, seed)
    reference = KINDS_OF_REFERENCES.get(type(cell), Reference)(cell, inputs)
    runners, fields, results = {}, {}, {}
    for contender in contenders:
        begins(contender.name)
        runner, known = prepare(cell, inputs, reference, contender)
        if runner is None:
            results[contender.name] = known
            ask_device(device)
        else:
            runners[contender.name], fields[contender.name] = runner, known
    begins(None)
    if runners:
        times, refused = sample(cell, runners, seconds)
        for name, reason in refused.items():
            results[name] = result(cell, name, FAILED, reason)
        for name, samples in times.items():
            check = checked(cell, runners[name], reference)
            results[name] = (timed(cell, name, **samples, **fields[name]) if check.correct else
                             result(cell, name, WRONG, f"{words(check)}, after it was timed", **fields[name]))
    return [results[contender.name] for contender in contenders]


def ask_device(device):
    """Raises DeviceLost when the GPU does not respond after a failure."""
    import torch

    if device == "cuda":
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise DeviceLost(f"the GPU does not answer: {first_line(error)}") from None
