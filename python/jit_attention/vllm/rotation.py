"""The rotation of 4-bit caches: it spreads outliers over columns, and scores do not change."""

import functools

import torch


class Rotation:
    """Rows times random signs and a Hadamard matrix, in blocks of the largest power of two that divides their columns.

    K and V are stored rotated, queries are rotated alike, and outputs back. The factors of a block of 2^n columns are
    2^-floor(n/2) for what is stored and 2^-ceil(n/2) for queries and outputs: exact in 16 bits, where 1/sqrt(2^n) is
    not.
    """

    def __init__(self, columns):
        self.columns = columns
        self._log2 = (columns & -columns).bit_length() - 1

    def stored(self, rows):
        """Keys or values, (…, columns), as they are stored."""
        return torch.matmul(rows, self._matrix(self._log2 // 2, rows))

    def of_queries(self, rows):
        """Queries, (…, columns), for keys that are stored."""
        return torch.matmul(rows, self._matrix((self._log2 + 1) // 2, rows))

    def back(self, rows, out):
        """Writes outputs over stored values, (…, columns), to out, which is another tensor."""
        torch.matmul(rows, self._matrix((self._log2 + 1) // 2, rows).T, out=out)

    def _matrix(self, halvings, rows):
        return _matrix(self.columns, halvings, rows.dtype, rows.device)


@functools.cache
def _matrix(columns, halvings, dtype, device):
    block = columns & -columns
    hadamard = torch.ones(1, 1)
    while len(hadamard) < block:
        hadamard = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), hadamard)
    bits = torch.randint(2, (columns, 1), generator=torch.Generator().manual_seed(0))  # the same in all processes
    matrix = (1 - 2 * bits) * torch.block_diag(*[hadamard] * (columns // block)) * 0.5**halvings
    return matrix.to(device=device, dtype=dtype)
