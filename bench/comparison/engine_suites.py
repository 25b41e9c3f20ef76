"""Problems of vLLM's own attention benchmark (standard_decode.yaml etc.): models' heads under tensor parallelism,
batches of one length, and production batches, in vLLM's notation."""

import re

from .serving_suites import PAGE, requests

# query heads, KV heads: Llama 3 8B, 70B (and Qwen), and 405B, on 1, 2, 4 and 8 GPUs; and both extremes
HEADS = {"8B": ((32, 8), (16, 4), (8, 2), (4, 1)), "70B": ((64, 8), (32, 4), (16, 2), (8, 1)),
         "405B": ((128, 8), (64, 4), (32, 2), (16, 1)), "MHA, MQA": ((32, 32), (32, 1))}
HEADS_AT = "64q1s4k"
# batch, keys
DECODE = ((1, "512"), (1, "8k"), (1, "32k"), (8, "2k"), (16, "16k"), (64, "1k"), (128, "4k"), (256, "512"))
# engines' other batches: prompts, mixed, verified drafts, chunks after a context
BATCHES = ("q2k", "4q512", "2q1k_16q1s2k", "16q4s4k", "4q512s8k", "q257_7q1s1057_3q4s2051_2q129s4093")
# other head dims: query heads, KV heads, head_dim
WIDTHS = ((64, 8, 64), (16, 1, 64), (32, 32, 96), (16, 8, 256))


def groups(words):
    """(count, queries, keys) for each part of vLLM's notation of a batch, most queries first: "2q1k_16q1s2k" is 2
    prompts of 1,024 tokens and 16 requests of 2,048 keys that decode. Without s a part has as many keys as queries."""
    parts = [re.fullmatch(r"(\d*)q(\d+k?)(?:s(\d+k?))?", part) for part in words.split("_")]
    if not all(parts):
        raise ValueError(f"{words!r} is no batch: parts are [count]q<queries>[s<keys>], such as 2q1k_16q1s2k")
    number = lambda text: int(text[:-1]) * 1024 if text.endswith("k") else int(text)
    found = [(int(count or 1), number(q), number(keys or q)) for count, q, keys in (part.groups() for part in parts)]
    return sorted(found, key=lambda group: -group[1])


def _row(words, heads_q, heads_kv, head_dim=128, **fields):
    width = "" if head_dim == 128 else f"-d{head_dim}"
    batch = groups(words)
    if any(queries > 1 for _, queries, _ in batch):
        fields |= dict(mask="causal", q_sequences="varlen")
    return requests("engine-shapes", f"{words}-h{heads_q}/{heads_kv}{width}", batch, heads_q, heads_kv, head_dim,
                    kv_sequences="paged", page_size=PAGE, **fields)


def _rows():
    rows = [_row(HEADS_AT, *heads, panel=f"{HEADS_AT}: heads", tick=f"{heads[0]}/{heads[1]}\n{model}")
            for model, all_heads in HEADS.items() for heads in all_heads]
    rows += [_row(f"{batch if batch > 1 else ''}q1s{keys}", 32, 8, panel="32/8 heads: batch, keys",
                  tick=f"b {batch}\n{keys}") for batch, keys in DECODE]
    rows += [_row(words, 32, 8, panel="32/8 heads: batches", tick=words.replace("_", "\n")) for words in BATCHES]
    return rows + [_row(HEADS_AT, *heads, head_dim, panel=f"{HEADS_AT}: head dims",
                        tick=f"{heads[0]}/{heads[1]}\nd {head_dim}") for *heads, head_dim in WIDTHS]


ENGINE_SUITES = {"engine-shapes": _rows()}
