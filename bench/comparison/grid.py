"""Training sizes: every cell has equally many tokens and the same width."""

from .cells import cell

TOKENS, WIDTH = 16384, 2048  # batch * seqlen, heads * head_dim
HEAD_DIMS = (64, 128, 256)
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)


def sized(suite, label, head_dim, seqlen, **fields):
    """A Cell with TOKENS and WIDTH."""
    return cell(suite, label, TOKENS // seqlen, seqlen, WIDTH // head_dim, head_dim, **fields)


def grid(suite, mask, seqlens=SEQLENS):
    """Cells for all head dims and `seqlens`."""
    return [sized(suite, f"d{head_dim}-s{seqlen}", head_dim, seqlen, mask=mask,
                  panel=f"head_dim {head_dim}, by seqlen", tick=str(seqlen))
            for head_dim in HEAD_DIMS for seqlen in seqlens]
