"""Support of Transformers models: those that use the attention interface."""

from __future__ import annotations

import inspect
import sys

import torch

from .sdpa import _refuse


def refuse_others(name):
    """Makes models without the attention interface refuse this name when they are built.

    Transformers takes every registered name for every model. One that computes attention itself would ignore it, fail
    with a KeyError, or read its masks. So this wraps the method by which all models resolve the name,
    `PreTrainedModel.get_correct_attn_implementation`.
    """
    from transformers import PreTrainedModel

    names = getattr(PreTrainedModel.get_correct_attn_implementation, "names_of_jit_attention", None)
    if names is None:
        names, of_transformers = set(), PreTrainedModel.get_correct_attn_implementation

        def get_correct_attn_implementation(self, requested_attention, *arguments, **keywords):
            if requested_attention in names:
                refuse_outsider(type(self), requested_attention)
            return of_transformers(self, requested_attention, *arguments, **keywords)

        get_correct_attn_implementation.names_of_jit_attention = names
        PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation
    names.add(name)


def refuse_outsider(model_class, name):
    """Raises InvalidArgumentError, with alternatives, when this model computes attention itself."""
    outsider = _outsider(model_class, name)
    if outsider is not None:
        other = "sdpa" if getattr(model_class, "_supports_sdpa", False) else "eager"
        _refuse("attn_implementation",
                f"is {name!r} for {model_class.__name__}, whose {outsider} computes attention by itself and asks no "
                f"function of the attention interface: use attn_implementation={other!r}, or, where it is a part of a "
                f"larger model, a dict such as {{'text_config': {name!r}, 'vision_config': {other!r}}}")


def _outsider(model_class, name):
    """The name of a class that bypasses the attention interface; None when there is none."""
    modules = {base.__module__ for base in model_class.__mro__
               if issubclass(base, torch.nn.Module) and not base.__module__.startswith("torch.")}
    modules.discard("transformers.modeling_utils")
    those = [vars(sys.modules[module]) for module in modules if module in sys.modules]
    for members in those:
        for table, by_name in members.items():
            if _is_table_of_modules(by_name) and name not in by_name:
                return table
    attentions = [member for members in those for member in members.values()
                  if inspect.isclass(member) and issubclass(member, torch.nn.Module) and member.__module__ in modules
                  and "Attention" in member.__name__]
    return None if not attentions or any(map(_asks_interface, attentions)) else attentions[0].__name__


def _is_table_of_modules(member):
    """Whether it is a table of layers by implementation name, such as `GPTJ_ATTENTION_CLASSES`."""
    return isinstance(member, dict) and "eager" in member and all(
        inspect.isclass(kind) and issubclass(kind, torch.nn.Module) for kind in member.values())


def _asks_interface(attention_class):
    """Whether a method of this class reads a global AttentionInterface."""
    from transformers import AttentionInterface

    for base in attention_class.__mro__:
        for method in vars(base).values():
            method = inspect.unwrap(method) if callable(method) else None
            names = getattr(getattr(method, "__code__", None), "co_names", ())
            if any(isinstance(method.__globals__.get(used), AttentionInterface) for used in names):
                return True
    return False
