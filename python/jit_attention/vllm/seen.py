"""Caches views of a layer's KV cache and its scales: making them takes longer than the launch of a kernel."""


class Seen:
    """The views of the tensors that were given last.

    vLLM hands the same tensors to a layer at each step, until it makes its caches anew.
    """

    def __init__(self):
        self._cache = self._k_scale = self._v_scale = self._place = self._made = None

    def of(self, make, cache, k_scale=None, v_scale=None):
        """make(cache, k_scale, v_scale), as it was made before where tensors are the same objects at their place."""
        place = cache.data_ptr()  # a tensor that stays the same object may get other memory
        if cache is self._cache and place == self._place and k_scale is self._k_scale and v_scale is self._v_scale:
            return self._made
        self._made = make(cache, k_scale, v_scale)
        self._cache, self._k_scale, self._v_scale, self._place = cache, k_scale, v_scale, place
        return self._made
