"""An attention backend for SGLang: with this package installed, ``--attention-backend jit_attention``.

SGLang calls `register` by itself in each of its processes, through the entry point ``sglang.srt.plugins``. What it
serves and what it refuses: docs/sglang.md.
"""

import logging

#: Versions whose interfaces the backend was written for: the beginnings of their numbers.
SERVED_VERSIONS = ("0.5.23",)

NAME = "jit_attention"
_log = logging.getLogger("jit_attention")


def register():
    """Adds the backend to SGLang's registry and to what its command line takes. Calling it again changes nothing.

    Never raises: it runs wherever this package is installed beside SGLang. Whether this version of SGLang is served is
    checked when the backend is asked for.
    """
    try:
        from sglang.srt.arg_groups import choices
        from sglang.srt.layers.attention.attention_registry import register_attention_backend
    except ImportError as error:
        _log.warning("this SGLang has no registry of attention backends (%s): pip install 'sglang==%s'", error,
                     SERVED_VERSIONS[-1])
        return
    register_attention_backend(NAME)(create)
    for names in (choices.ATTENTION_BACKEND_CHOICES, choices.DETERMINISTIC_ATTENTION_BACKEND_CHOICES):
        if NAME not in names:
            names.append(NAME)


def create(model_runner):
    """The backend for a model; raises ImportError for a version of SGLang that is not served."""
    import sglang

    version = sglang.__version__
    if not f"{version}.".startswith(tuple(f"{start}." for start in SERVED_VERSIONS)):
        raise ImportError(f"jit_attention.sglang serves SGLang {', '.join(SERVED_VERSIONS)}, and this is {version}: "
                          "install one that it serves, or choose another --attention-backend")
    from .backend import JitAttentionBackend

    return JitAttentionBackend(model_runner)
