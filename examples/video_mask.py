"""Block-sparse attention over a video: a tile of tokens sees the tiles around it in time and space.

    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/video_mask.py

Tokens are ordered tile by tile, so that a tile of 2 frames × 4 rows × 8 columns is 64 tokens in a row, and a block of
scores is one tile of queries against one tile of keys: sliding tile attention. Which blocks are seen is a table of zeros
and ones; kernels skip the others, and evaluate no mask.
"""

import numpy as np
from arrays import exact_attention, place, random_arrays, report

import jit_attention as ja

TILE = 2 * 4 * 8  # tokens
GRID = (4, 3, 2)  # tiles of the video in time, height and width: 8 frames of 12 × 16 tokens
WINDOW = (1, 1, 0)  # tiles to either side that a tile sees

places = np.stack(np.unravel_index(np.arange(np.prod(GRID)), GRID), axis=-1)
near = (np.abs(places[:, None] - places[None, :]) <= WINDOW).all(-1)  # (tiles of queries, tiles of keys)

seqlen = TILE * len(places)
q, k, v = random_arrays(3, 1, seqlen, 2, 64, seed=7)
blocks = ja.block_mask(q, k, blocks=place(near[None, None]), block_size=(TILE, TILE))
o = ja.attention(q, k, v, block_mask=blocks)  # any number of layers and steps share the table

print(f"{seqlen} tokens, {near.mean():.0%} of the scores")
report("o", o, exact_attention(q, k, v, keep=np.kron(near, np.ones((TILE, TILE), bool)))[0])
