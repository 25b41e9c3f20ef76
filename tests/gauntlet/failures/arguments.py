"""Arguments that were taken although they could not mean what they said."""

import numpy

from .case import case
from .interface import NotOffered, Refused, check_forward
from .problem import FP16, dense, int32


def check_refused(call, what):
    """A call that a library must not answer: it says so, by an exception."""
    try:
        call()
    except Refused:
        return
    except NotOffered:
        raise
    except Exception:
        return
    raise AssertionError(f"{what} is taken in silence")


@case(
    "pytorch/pytorch#172183",
    "attention compiled by PyTorch",
    "q of fp16 beside v of fp32 is computed in silence",
    "q, k and v of different types are refused",
)
def check_mixed_types(library, run):
    asked = dense(run.rng, seqlen_q=20)
    check_refused(lambda: library.forward(asked.change(v=asked.v.astype(FP16))), "v of another type than k")


@case(
    "pytorch/pytorch#141625",
    "FlexAttention",
    "a block mask made for other lengths is taken",
    "blocks for fewer queries or keys than there are are refused",
)
def check_blocks_for_other_lengths(library, run):
    asked = dense(run.rng, seqlen_q=256, blocks=(numpy.ones((2, 2), bool), 128))
    check_forward(library, asked)
    longer = dense(run.rng, seqlen_q=384, blocks=(numpy.ones((2, 2), bool), 128))
    check_refused(lambda: library.forward(longer), "a block mask of 256 by 256 for 384 tokens")


@case(
    "Dao-AILab/flash-attention#1116",
    "FlashAttention-2",
    "a window side below −1 is taken as if it were open",
    "a window of (−1, −3) is refused",
)
def check_windows_below_zero(library, run):
    asked = dense(run.rng, seqlen_q=40, causal=True, window=(-1, -3))
    check_refused(lambda: library.forward(asked), "a window to the right of −3")


@case(
    "jax-ml/jax#23349",
    "jax.nn.dot_product_attention",
    "key_value_seq_lengths is taken and ignored",
    "outputs of a padded batch with lengths see no padding",
)
def check_lengths_of_a_padded_batch(library, run):
    lengths = [24, 64, 3, 57]
    asked = dense(run.rng, batch=4, seqlen_q=64, seqused_k=int32(lengths))
    check_forward(library, asked)
