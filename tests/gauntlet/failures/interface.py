"""The interface that a library must offer to be put to the cases; what it has not, it refuses."""

import threading

from .exact import compare


class NotOffered(Exception):
    """A library has no way to be asked for this, or refuses it with a sentence of its own: no silent failure."""


class Refused(NotOffered):
    """A library refused a problem by an exception: loudly."""


class Library:
    """Base of all. Arrays are NumPy's on both sides, results in double precision."""

    def forward(self, problem):
        """The Outcome with o, and lse where the library tells it."""
        raise NotOffered("no attention")

    def gradients(self, problem):
        """The Outcome with o and gradients for problem.d_o."""
        raise NotOffered("no gradients")

    def merge(self, outs, lses):
        """(o, lse) of partial results: o (tokens, heads, head_dim), lse (heads, tokens), −inf without keys."""
        raise NotOffered("no merge of partial results")

    def replayed(self, problem, other):
        """The Outcome of `other`, of equal shapes, by a CUDA graph that captured `problem`."""
        raise NotOffered("no CUDA graph")

    def queued(self, problems):
        """Outcomes of calls that are queued one behind another, without waiting in between."""
        return [self.forward(problem) for problem in problems]

    def chained(self, problem, count):
        """The Outcome of the last of `count` calls, queued at once: each has the output of the one before as q."""
        raise NotOffered("no chain of calls")

    def on_streams(self, problems):
        """Outcomes of calls on a stream each, which overlap."""
        raise NotOffered("no streams")

    def quantized(self, problem):
        """The Outcome of fp8 attention, with scales that the library finds."""
        raise NotOffered("no attention that quantizes")


def check_forward(library, *problems):
    """Compares the results of problems with double precision."""
    for problem in problems:
        compare(problem, library.forward(problem))


def check_gradients(library, *problems):
    """Compares results and gradients of problems with double precision."""
    for problem in problems:
        compare(problem, library.gradients(problem))


def in_threads(count, work):
    """work(i) in `count` threads at once; the first error is raised."""
    errors, begin = [], threading.Barrier(count)

    def run(i):
        try:
            begin.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if errors:
        raise errors[0]
