"""Dimensions that a mask may depend on, judged by words in its texts and the names of its built-in masks."""

from __future__ import annotations

import re

#: Built-in masks that differ between batch entries, by an array or by sequence ends.
_OF_BATCH_ENTRIES = ("document", "prefix_lengths", "causal_per_request", "draft_tree", "tree")


def differs_by_entry(mask):
    """Whether batch entries may have different masks, judged by names."""
    built_in = re.sub(r"text\([^)]*\)", "", mask.text)
    return any(re.search(rf"\b{name}\b", built_in) for name in _OF_BATCH_ENTRIES) or _texts_name(mask, "b")


def differs_by_head(mask):
    """Whether a mask may depend on the query head."""
    return _texts_name(mask, "h|heads_q")


def goes_by_lengths(mask):
    """Whether a mask may depend on sequence lengths, judged by names."""
    others = re.sub(r"text\([^)]*\)|\w+\([^)]*top_left\)", "", mask.text)
    built_in = re.search(r"\b(causal|sliding_window|causal_per_request|draft_tree|tree)\b", others)
    return built_in is not None or _texts_name(mask, "seqlen_q|seqlen_kv")


def _texts_name(mask, names):
    """Whether a text of the mask contains one of these words."""
    return any(re.search(rf"\b({names})\b", f"{text.body} {text.classify}") for text in mask.texts)
