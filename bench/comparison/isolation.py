"""Measurement in a separate process: a contender that hangs, loses the GPU or ends the process only costs its own
results."""

import functools
import multiprocessing
import sys
import traceback

from .measure import DeviceLost, ask_device, measure
from .records import FAILED, result

START_SECONDS, STOP_SECONDS = 120, 10
FREE_SHARE = 0.5  # the share of GPU memory that must be free for a cell
READY, BEGINS, RESULTS, ERROR, LOST = range(5)  # kinds of the process's messages


class Lost(Exception):
    """The process was terminated; the next call starts another one. `contender`: the name of the one being prepared,
    None during sampling; `silent`: whether it had not answered in time."""

    def __init__(self, contender, reason, silent=False):
        super().__init__(reason)
        self.contender, self.silent = contender, silent


class MeasuringProcess:
    """A process that measures cells in sequence, started on demand. Not thread safe.

    make_contenders: a picklable function that creates the contenders there. limit: seconds without an answer, for
    preparing one contender or sampling all.
    """

    def __init__(self, make_contenders, limit, device="cuda"):
        self.make_contenders, self.limit, self.device = make_contenders, limit, device
        self.process = self.connection = None

    def measure(self, cell, names, seconds, seed):
        """The results of measure.measure for the contenders `names`. Raises Lost; RuntimeError, with a traceback, for
        errors not caused by a contender."""
        busy = None
        try:
            if self.process is None:
                self.begin()
                self.answer(START_SECONDS, busy)
            self.send((cell, names, seconds, seed))
            while True:
                kind, value = self.answer(self.limit, busy)
                if kind == RESULTS:
                    results, is_full = value
                    if is_full:
                        self.end()
                    return results
                if kind == ERROR:
                    raise RuntimeError(value)
                if kind == LOST:
                    raise Lost(busy, value)
                busy = value
        except Lost:
            self.end()
            raise
        except (EOFError, OSError):
            self.process.join(STOP_SECONDS)
            status = self.process.exitcode
            self.end()
            raise Lost(busy, f"its process ended with status {status}") from None

    def answer(self, limit, busy):
        """The next message. Raises Lost after `limit` seconds without one, with `busy` as the contender."""
        if not self.connection.poll(limit):
            raise Lost(busy, f"no answer for {limit:g} s", silent=True)
        return self.connection.recv()

    def send(self, task):
        self.connection.send(task)

    def begin(self):
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, self.make_contenders, self.device), daemon=True)
        self.process.start()
        other.close()

    def end(self):
        """Terminates the process in any state."""
        if self.process is not None:
            self.process.kill()
            self.process.join(STOP_SECONDS)
            self.connection.close()
        self.process = self.connection = None


def measure_all(process, cell, names, seconds, seed, silent):
    """The results of the contenders `names`, "failed" for those that lost the process. silent: {name: reason} of
    contenders that did not answer; they are skipped, and new ones are added. Raises Lost when no contender caused the
    loss, and RuntimeError."""
    lost = {name: silent[name] for name in names if name in silent}
    while True:
        here = [name for name in names if name not in lost]
        try:
            results = process.measure(cell, here, seconds, seed)
            return results + [result(cell, name, FAILED, reason) for name, reason in lost.items()]
        except Lost as reason:
            found = {reason.contender: reason} if reason.contender else _lost_alone(process, cell, here, seconds, seed)
            if not found:
                raise
            for name, why in found.items():
                lost[name] = str(why)
                if why.silent:
                    silent[name] = f"{why} in {cell.name}, and left out since"
                print(f"compare.py: {cell.name}: {name}: {why}", file=sys.stderr, flush=True)


def _lost_alone(process, cell, names, seconds, seed):
    """{name: Lost} for contenders that lose the process when measured alone."""
    lost = {}
    for name in names:
        try:
            process.measure(cell, [name], seconds, seed)
        except Lost as reason:
            lost[name] = reason
    return lost


def is_full(device):
    """Whether the GPU lacks memory for another cell: some contenders keep memory of captured calls while the process
    lives."""
    import torch

    if device != "cuda":
        return False
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return free < FREE_SHARE * total


def _serve(connection, make_contenders, device):
    import torch  # noqa: F401, slower than the first answer may be

    serve(connection, make_contenders, device, functools.partial(measure, device=device))


def serve(connection, make_contenders, device, measured):
    """Answers what comes until nothing does. measured(cell, contenders, seconds, seed, begins): the results."""
    everyone = {one.name: one for one in make_contenders()}
    connection.send((READY, None))
    while True:
        try:
            cell, names, seconds, seed = connection.recv()
        except EOFError:
            return
        try:
            contenders = [everyone[name] for name in names]
            results = measured(cell, contenders, seconds, seed, begins=lambda name: connection.send((BEGINS, name)))
            connection.send((RESULTS, (results, is_full(device))))
        except DeviceLost as lost:
            connection.send((LOST, str(lost)))
        except Exception:
            text = traceback.format_exc()
            try:
                ask_device(device)
                connection.send((ERROR, text))
            except DeviceLost as lost:
                connection.send((LOST, str(lost)))
