"""Measurement by the ranks of a group, one process each. It works as isolation.MeasuringProcess; rank 0 answers for all."""

import multiprocessing
import os
import shutil
import tempfile
from multiprocessing import connection as connections

from .group_measure import GroupMeasurement
from .group_rank import joined
from .isolation import STOP_SECONDS, Lost, MeasuringProcess, serve

#: Samples of each figure, at most; a warm-up before them.
SAMPLES, EMULATED_SAMPLES = (20, 3), (2, 1)


class GroupProcesses(MeasuringProcess):
    """Processes for all ranks of the next cell, started on demand. Not thread safe."""

    def __init__(self, make_contenders, limit, device="cuda"):
        super().__init__(make_contenders, limit, device)
        self.ranks, self.others, self.folder = 0, [], None

    def measure(self, cell, names, seconds, seed):
        if self.ranks != cell.ranks:
            self.end()
        self.ranks = cell.ranks
        return super().measure(cell, names, seconds, seed)

    def answer(self, limit, busy):
        """The next message of rank 0. Raises Lost, too, when another rank has ended."""
        ended = {process.sentinel: rank for rank, (process, _) in enumerate(self.others, 1)}
        ready = connections.wait([self.connection, *ended], limit)
        for one in ready:
            if one in ended and self.connection not in ready:
                raise Lost(busy, f"the process of rank {ended[one]} ended")
        return super().answer(limit if not ready else 0, busy)

    def send(self, task):
        for to in (self.connection, *(pipe for _, pipe in self.others)):
            to.send(task)

    def begin(self):
        context = multiprocessing.get_context("spawn")
        self.folder = tempfile.mkdtemp(prefix="jit-attention-compare-")
        started = []
        for rank in range(self.ranks):
            here, there = context.Pipe()
            process = context.Process(target=_serve, daemon=True, args=(
                there, self.make_contenders, self.device, rank, self.ranks, os.path.join(self.folder, "store")))
            process.start()
            there.close()
            started.append((process, here))
        (self.process, self.connection), *self.others = started

    def end(self):
        for process, pipe in self.others:
            process.kill()
            process.join(STOP_SECONDS)
            pipe.close()
        super().end()
        self.others = []
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None


class _Silent:
    """The connection of a rank whose answers nobody reads."""

    def __init__(self, connection):
        self.recv = connection.recv

    def send(self, message):
        pass


def _serve(connection, make_contenders, device, rank, ranks, store):
    repeats, warm_up = SAMPLES if device == "cuda" else EMULATED_SAMPLES
    with joined(rank, ranks, device, store, repeats=repeats, warm_up=warm_up) as own:
        of_group = GroupMeasurement(own)

        def measured(cell, contenders, seconds, seed, begins):
            return of_group.measure(cell, contenders, seconds, begins)

        serve(connection if rank == 0 else _Silent(connection), make_contenders, device, measured)
        os._exit(0)  # the others may have ended already
