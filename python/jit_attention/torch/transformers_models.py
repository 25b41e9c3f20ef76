"""Which models of Transformers an implementation of this package can serve: those that ask the attention interface."""

from __future__ import annotations

import inspect
import sys

import torch

from .sdpa import _refuse


def refuse_others(name):
    """From now on models that never ask the attention interface are refused when they are built with this name.

    Transformers takes every registered name for every model. One that computes attention by itself would ignore it,
    fail with the name as a KeyError, or read the masks that belong to it. So this wraps the method by which all models
    look at the name, `PreTrainedModel.get_correct_attn_implementation`.
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
    """Raises InvalidArgumentError where this model computes attention by itself, with what would work."""
    outsider = _outsider(model_class, name)
    if outsider is not None:
        other = "sdpa" if getattr(model_class, "_supports_sdpa", False) else "eager"
        _refuse("attn_implementation",
                f"is {name!r} for {model_class.__name__}, whose {outsider} computes attention by itself and asks no "
                f"function of the attention interface: use attn_implementation={other!r}, or, where it is a part of a "
                f"larger model, a dict such as {{'text_config': {name!r}, 'vision_config': {other!r}}}")


def _outsider(model_class, name):
    """Name of what keeps a model outside of the attention interface; None where nothing does."""
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
    """Whether layers are chosen here by the name of an implementation, as `GPTJ_ATTENTION_CLASSES` does."""
    return isinstance(member, dict) and "eager" in member and all(
        inspect.isclass(kind) and issubclass(kind, torch.nn.Module) for kind in member.values())


def _asks_interface(attention_class):
    """Whether a method of this class reads a global variable that is an AttentionInterface."""
    from transformers import AttentionInterface

    for base in attention_class.__mro__:
        for method in vars(base).values():
            method = inspect.unwrap(method) if callable(method) else None
            names = getattr(getattr(method, "__code__", None), "co_names", ())
            if any(isinstance(method.__globals__.get(used), AttentionInterface) for used in names):
                return True
    return False
