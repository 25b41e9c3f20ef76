"""The mask function for `register_with_transformers`. Its import needs Transformers."""

from __future__ import annotations

import functools
import inspect
import logging
import types

import torch
from transformers import masking_utils

from .. import mask as _mask
from ..errors import InvalidArgumentError
from . import active
from .transformers import AttentionMask

_log = logging.getLogger("jit_attention")

if "q_length" not in inspect.signature(masking_utils.sdpa_mask).parameters:
    raise ImportError("this version of transformers calls mask functions with other arguments")

_CAUSAL = _mask.causal()
_ALL = _mask.none()

# For each batch entry: its first token, the end of its tokens, and whether all positions between are tokens.
_PADDING = _mask.text(
    "return is_token[b * seqlen_kv + k];",
    name="padding",
    classify="""const int first = token_span[3 * b], end = token_span[3 * b + 1];
if (k_end <= first || k_begin >= end) return TileClass::empty;
const bool all_tokens = token_span[3 * b + 2] && k_begin >= first && k_end <= end;
return all_tokens ? TileClass::full : TileClass::partial;""",
    tensors={"is_token": "uint8", "token_span": "int32"},
)


def attention_mask_function(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
                            mask_function=masking_utils.causal_mask_function, attention_mask=None,
                            allow_is_causal_skip=True, allow_is_bidirectional_skip=False, **kwargs):
    """The mask of a forward pass, as `transformers.masking_utils.AttentionMaskInterface` calls it.

    Args:
        batch_size, q_length, kv_length: sizes.
        q_offset, kv_offset: positions of the first query and key.
        mask_function: of (batch, head, query, key), which pattern this is.
        attention_mask: bool (batch, tokens), True for tokens, False for padding; None: no padding.
        allow_is_causal_skip, allow_is_bidirectional_skip: whether the model can do without a tensor.

    Returns:
        An AttentionMask for causal and full masks and sliding windows, with padding or over packed sequences; else what
        "eager" gets, a tensor (batch, 1, q_length, kv_length) of numbers. Where that is because nobody here knows the
        pattern, the log says so once.
    """
    if isinstance(attention_mask, AttentionMask):
        return attention_mask
    shape = (batch_size, 1, q_length, kv_length)
    parts = _parts(mask_function)
    if active.calls:
        return _of_whole_sequences(parts, attention_mask, shape)
    if attention_mask is None and (packed := _packed(parts, shape)) is not None:
        pattern, ids = packed
        mask = _mask.document() if pattern is _ALL else _mask.document() & pattern
        return AttentionMask(mask, {"document_ids_q": ids, "document_ids_kv": ids}, shape, pattern)
    pattern = None
    if allow_is_causal_skip or allow_is_bidirectional_skip:
        aligned = not isinstance(q_offset, torch.Tensor) and q_offset + q_length == kv_offset + kv_length
        pattern = _pattern(parts, aligned)
    if pattern is None or (attention_mask is not None and attention_mask.dim() != 2):
        if q_length > 1 and not torch.compiler.is_compiling() and _pattern(parts, aligned=True) is None:
            _tell_of_a_tensor(" and ".join(getattr(part, "__qualname__", repr(part)) for part in parts))
        return _added_to_scores(masking_utils.sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=mask_function, attention_mask=attention_mask, allow_is_causal_skip=False, **kwargs),
            kwargs.get("dtype", torch.float32))

    if attention_mask is not None:
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        is_token = padding[:, kv_offset:kv_offset + kv_length]
        if _must_not_wait() or not is_token.all():
            padded = _PADDING if pattern is _ALL else pattern & _PADDING
            return AttentionMask(padded, _padding_tensors(is_token), shape)
    return AttentionMask(pattern, {}, shape, pattern)


def _of_whole_sequences(parts, attention_mask, shape):
    """The pattern for a model with sharded sequences: the placement knows which ones are packed."""
    of_each = [one for part in parts if not _is_made_by(masking_utils.packed_sequence_mask_function, part, None)
               for one in _parts(_of_positions_in_entry(part))]
    pattern = _pattern(of_each, aligned=True)
    if pattern is None or (attention_mask is not None and not attention_mask.all()):
        raise InvalidArgumentError("attention_mask: is padded or of an unknown pattern inside of context_parallel, where "
                                   "masks are causal, windows or full: pack sequences in place of padding, with the "
                                   "placement's documents", "arguments", "attention_mask")
    return AttentionMask(pattern, {}, shape, pattern)


def _added_to_scores(kept, dtype):
    """The mask that "eager" gets, of numbers: layers that read it themselves may support no other kind, and would read
    the bools of "sdpa" as ones. Broadcast dimensions stay unexpanded."""
    held = kept
    for dimension in range(kept.dim()):
        if kept.stride(dimension) == 0:
            held = held.narrow(dimension, 0, 1)
    lowest = torch.finfo(dtype).min
    return torch.zeros(held.shape, dtype=dtype, device=held.device).masked_fill_(~held, lowest).expand(kept.shape)


@functools.cache
def _tell_of_a_tensor(functions):
    _log.warning("mask_function: is %s, which is not known here: as for 'eager' it becomes a tensor (batch, 1, "
                 "q_length, kv_length) in each forward pass. Known are causal and full masks and sliding windows, with padding "
                 "or over packed sequences", functions)


def _parts(mask_function):
    """The mask functions that Transformers combined by "and", in any order."""
    if torch.compiler.is_compiling() or not _is_made_by(masking_utils.and_masks, mask_function):
        return [mask_function]  # the compiler cannot inspect functions
    return [part for joined in _captured(mask_function)["mask_functions"] for part in _parts(joined)]


def _pattern(parts, aligned):
    """The Mask equivalent to all of Transformers' functions, or None for an unknown combination."""
    if len(parts) == 1 and parts[0] is masking_utils.bidirectional_mask_function:
        return _ALL
    if not aligned:  # the last query is not at the last key
        return None
    if len(parts) == 1:
        return _CAUSAL if parts[0] is masking_utils.causal_mask_function else None
    if len(parts) != 2:
        return None
    for overlay, base in (parts, reversed(parts)):
        if base is masking_utils.causal_mask_function and _is_made_by(masking_utils.sliding_window_overlay, overlay, 1):
            return _mask.sliding_window(_captured(overlay)["sliding_window"] - 1, 0)
        if base is masking_utils.bidirectional_mask_function and _is_made_by(
                masking_utils.sliding_window_bidirectional_overlay, overlay, 1):
            size = _captured(overlay)["sliding_window"]
            return _mask.sliding_window(size, size)
    return None


def _packed(parts, shape):
    """The Mask of each packed sequence, and the tokens' sequence ids, int32 (batch, tokens); or None.

    Versions of Transformers combine the sequence with a pattern of positions within it (since 5.18) or in the batch
    entry (before). Both are equivalent: patterns depend only on position differences.
    """
    if torch.compiler.is_compiling():
        return None
    which = [part for part in parts if _is_made_by(masking_utils.packed_sequence_mask_function, part, None)]
    if len(which) != 1:
        return None
    of_each = [one for part in parts if part is not which[0] for one in _parts(_of_positions_in_entry(part))]
    ids = _captured(which[0])["packed_sequence_mask"]
    pattern = _pattern(of_each, aligned=True)
    batch, _, seqlen_q, seqlen_kv = shape
    if pattern is None or seqlen_q != seqlen_kv or ids.shape != (batch, seqlen_q):
        return None
    return pattern, ids.to(torch.int32)


def _of_positions_in_entry(function):
    """The pattern inside a function of positions within a sequence; other functions unchanged."""
    remap = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
    is_remapped = remap is not None and _is_made_by(remap, function, None, None)
    return _captured(function)["mask_function"] if is_remapped else function


def _captured(function):
    """Names and values of a function's closure variables."""
    if not isinstance(function, types.FunctionType):
        return {}
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))


def _is_made_by(factory, function, *arguments):
    """Whether `factory` returned the function; any valid arguments do."""
    return getattr(function, "__code__", None) is factory(*arguments).__code__


def _must_not_wait():
    """Whether tensors cannot be read here, since they have no contents yet."""
    return torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _padding_tensors(is_token):
    length = is_token.shape[1]
    positions = torch.arange(length, device=is_token.device)
    first = torch.where(is_token, positions, length).amin(1)
    end = torch.where(is_token, positions + 1, 0).amax(1)
    solid = is_token.sum(1) == end - first
    return {"is_token": is_token.to(torch.uint8, memory_format=torch.contiguous_format),
            "token_span": torch.stack((first, end, solid), 1).to(torch.int32)}
