"""Continuous batching of Hugging Face Transformers: attention over its paged cache."""

import re

import torch

from .. import append
from .. import mask as _mask
from .. import score as _score
from .op import attention
from .sdpa import _refuse


def register_continuous_batching(name: str = "jit_flash_attention_3") -> None:
    """Registers ``attn_implementation=name`` with Hugging Face Transformers, only for continuous batching.

    It serves models in bf16 or fp16, with windows of each layer, softcap and sinks. A step with prompts is one call
    over varlen keys that Transformers gathers from its cache. A step that only decodes reads and writes the pages, if
    Transformers makes a page table (on CUDA). Lengths stay on the device.

    Transformers accepts external implementations only under names of flash-attention, and asks a module for the
    functions behind such a name. This function adds the name to `_lazy_imports` of
    `transformers.modeling_flash_attention_utils` (tested with 5.23 and 5.24).

    Args:
        name: The name. A second registration under the same name changes nothing.

    Raises:
        ImportError: Transformers is missing, or has another continuous batching.
        ValueError: The name lacks "flash" followed by a 2 or 3, without which Transformers would not use pages.

    Thread safety:
        Call it once, from one thread.

    Examples:
        >>> import transformers
        >>> jit_attention.torch.register_continuous_batching()
        >>> config = transformers.LlamaConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        ...                                   num_attention_heads=2)
        >>> model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        >>> model.set_attn_implementation("jit_flash_attention_3")
    """
    if not re.match(r".*flash.*[23]", name):
        raise ValueError(f"name is {name!r}; it must have 'flash' and behind it a 2 or a 3, by which Transformers "
                         "knows what reads pages: 'jit_flash_attention_3'")
    try:
        from transformers import AttentionInterface, __version__
        from transformers import modeling_flash_attention_utils as flash
        from transformers.masking_utils import AttentionMaskInterface

        known = flash._lazy_imports
        _ = flash._pad_input, flash._unpad_input
        if tuple(map(int, __version__.split(".")[:2])) < (5, 23):  # it requires its own kind of names
            raise ImportError(f"transformers {__version__}")
    except (ImportError, AttributeError) as error:
        raise ImportError(f"register_continuous_batching needs transformers 5.23 or 5.24, and there is: {error}; "
                          "pip install 'transformers==5.24.*'") from error
    names = getattr(known, "names_of_jit_attention", None)
    if names is None:
        names, others = set(), known

        def known(implementation, *arguments, **keywords):
            if implementation not in names:
                return others(implementation, *arguments, **keywords)
            from ..flash_attn import v3

            return (v3.flash_attn_func, v3.flash_attn_varlen_func, v3.flash_attn_with_kvcache, flash._pad_input,
                    flash._unpad_input)

        known.names_of_jit_attention = names
        flash._lazy_imports = known
    names.add(name)
    AttentionInterface.register(name, paged_attention_function)
    AttentionMaskInterface.register(name, no_mask)


def no_mask(*_, attention_mask=None, **__):
    """Continuous batching has lengths in place of masks; `paged_attention_function` refuses what has no lengths."""
    return attention_mask


def paged_attention_function(module, query, key, value, attention_mask, scaling=None, sliding_window=None,
                             softcap=None, s_aux=None, cache=None, dropout=0.0, **kwargs):
    """The attention of one layer in a step of continuous batching, as `transformers.AttentionInterface` calls it.

    Args:
        module: the layer; its `layer_idx` says which part of `cache` is its own.
        query: (1, heads_q, tokens, head_dim), bf16 or fp16, the tokens of all requests one behind another.
        key, value: (1, heads_kv, tokens, head_dim), of these tokens; without `cache` and a table of pages, of all
            tokens of the requests.
        attention_mask: None.
        scaling: of query · key; None: 1/sqrt(head_dim).
        sliding_window: number of keys that a query sees, its own included.
        softcap: of the scores.
        s_aux: (heads_q), sinks.
        cache: transformers' PagedAttentionCache, which is asked for keys; None since 5.24, whose models ask it.
        dropout: 0.
        kwargs: what the cache reads or has written, `cu_seq_lens_q` and `cu_seq_lens_k` among it.

    Returns:
        (1, tokens, heads_q, head_dim_v), contiguous, and None for the weights.

    Raises InvalidArgumentError for calls without lengths, as all outside of continuous batching that are not packed
    are, for such as are not causal, and for fp32, attention weights, masks, biases and dropout.
    """
    for lengths in ("cu_seq_lens_q", "cu_seq_lens_k") if cache is None else ():
        if kwargs.get(lengths) is None:
            _refuse(lengths, "is missing; this implementation is for continuous batching: use "
                    "attn_implementation='jit_attention' for other calls")
    if kwargs.get("output_attentions"):
        _refuse("output_attentions", "is set, but no weights are formed here; use attn_implementation='paged|eager'")
    if attention_mask is not None:
        _refuse("attention_mask", "is given; requests of continuous batching have lengths and no masks: leave it out")
    if dropout:
        _refuse("dropout", f"is {dropout}; there is none of paged keys: call eval() of the model")
    if kwargs.get("position_bias") is not None:
        _refuse("position_bias", "is given; scores of continuous batching have none: leave it out")
    if kwargs.get("is_causal", getattr(module, "is_causal", True)) is False:
        _refuse("is_causal", "is False; tokens of continuous batching see those before them: use "
                "attn_implementation='jit_attention' for other calls")
    if query.shape[0] != 1:
        _refuse("query", f"has a batch of {query.shape[0]}; the requests of continuous batching are one behind another "
                "in a batch of 1: use attn_implementation='jit_attention' for other calls")
    if cache is not None:
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=kwargs)
    mask = _mask.causal() if sliding_window is None else _mask.sliding_window(sliding_window - 1, 0)
    problem = dict(mask=mask, score=None if softcap is None else _score.softcap(softcap), softmax_scale=scaling,
                   sinks=None if s_aux is None else s_aux.float())
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    ends_q, ends_k = (kwargs[f"cu_seq_lens_{side}"].to(torch.int32) for side in "qk")
    if kwargs.get("block_table") is None:
        o = attention(q, k, v, cu_seqlens_q=ends_q, cu_seqlens_k=ends_k, **problem)
        return o.unsqueeze(0), None
    requests = q.shape[0]  # each has one token
    # K and V pages alternate, and both views cover all of them, V's from one page later: the table has only even
    # numbers. Every second page is a view without overlap with the other.
    where = dict(seqused_k=ends_k[1:requests + 1] - ends_k[:requests],
                 page_table=kwargs["block_table"][:requests] // 2)
    pages = kwargs["k_cache"][::2], kwargs["v_cache"][::2]
    append(k.unsqueeze(1), v.unsqueeze(1), *pages, **where)
    o = attention(q.unsqueeze(1), *pages, **where, **problem)
    return o.transpose(0, 1), None
