"""An attention backend for vLLM: with this package installed, ``vllm serve MODEL --attention-backend CUSTOM``.

vLLM calls `register` in each of its processes, through the entry point ``vllm.general_plugins``. Nothing of vLLM is
imported before that. docs/vllm.md lists the supported models and options.
"""

import logging

#: Version prefixes that the backend supports.
SERVED_VERSIONS = ("0.33",)

_BACKEND = "jit_attention.vllm.chosen.Backend"
_log = logging.getLogger("jit_attention")


def register():
    """Registers the backend as ``CUSTOM`` with vLLM. Calling it again changes nothing.

    Never raises, because it runs wherever this package is installed beside vLLM, also if another backend is used. If
    ``CUSTOM`` is taken already, or vLLM has no registry, the logger ``jit_attention`` reports it. The version of vLLM
    is checked when the backend is requested.
    """
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    except ImportError as error:
        _log.warning("this vLLM has no registry of attention backends (%s): pip install 'vllm==%s.*'", error,
                     SERVED_VERSIONS[-1])
        return
    custom = AttentionBackendEnum.CUSTOM
    if custom.is_overridden() and custom.get_path() != _BACKEND:
        _log.warning("vLLM's attention backend CUSTOM is %s already: set VLLM_PLUGINS=jit_attention to load no other "
                     "plug-in", custom.get_path())
        return
    register_backend(custom, _BACKEND)
