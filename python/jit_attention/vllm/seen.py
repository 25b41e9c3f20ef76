"""Cached views of a layer's KV cache and its scales: creating them takes longer than a kernel launch."""


class Seen:
    """The views of the latest tensors.

    vLLM passes the same tensors to a layer at each step, until it reallocates its caches.
    """

    def __init__(self):
        self._cache = self._k_scale = self._v_scale = self._place = self._made = None

    def of(self, make, cache, k_scale=None, v_scale=None):
        """make(cache, k_scale, v_scale), cached while the tensors are the same objects at the same address."""
        place = cache.data_ptr()  # the same tensor object may get other memory
        if cache is self._cache and place == self._place and k_scale is self._k_scale and v_scale is self._v_scale:
            return self._made
        self._made = make(cache, k_scale, v_scale)
        self._cache, self._k_scale, self._v_scale, self._place = cache, k_scale, v_scale, place
        return self._made
