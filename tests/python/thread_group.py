"""Ranks as threads of one process, and the collectives of engines' groups among them."""

import threading

_here = threading.local()


def of_this_thread():
    """The group of the rank that this thread is; None: it is none."""
    return getattr(_here, "group", None)


class Group:
    """One rank's view. Collectives copy, as those between GPUs do."""

    def __init__(self, rank, ranks, barrier, board):
        self.rank_in_group, self.world_size = rank, ranks
        self._barrier, self._board = barrier, board

    def _posted(self, tensor):
        self._board[self.rank_in_group] = tensor.detach().clone()
        self._barrier.wait()
        posted = list(self._board)
        self._barrier.wait()
        return posted

    def all_gather(self, tensor, dim):
        import torch

        assert tensor.is_contiguous()
        return torch.cat(self._posted(tensor), dim)

    def all_reduce(self, tensor):
        return sum(self._posted(tensor))

    def reduce_scatter(self, tensor, dim):
        return self.all_reduce(tensor).chunk(self.world_size, dim)[self.rank_in_group].contiguous()


def run(ranks, function):
    """The values of function(rank) on each rank; raises the error of a rank."""
    barrier, board = threading.Barrier(ranks, timeout=120), [None] * ranks
    results, errors = [None] * ranks, []

    def serve(rank):
        _here.group = Group(rank, ranks, barrier, board)
        try:
            results[rank] = function(rank)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=serve, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
