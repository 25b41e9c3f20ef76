"""Pages of `nvfp4` as vLLM lays them out: numbers of all heads' keys, their scales, then those of values."""

#: Columns that share a scale of a byte.
BLOCK = 16


def content_bytes(head_size):
    """Bytes of a token's key or value of one head: its numbers, two in a byte, and a scale for each block of them."""
    return head_size // 2 + head_size // BLOCK


def views_of(kv_cache):
    """Keys, values, scales of keys and of values, each (pages, page_size, heads_kv, bytes).

    Args:
        kv_cache: uint8 (pages, 2 · heads_kv, page_size, content_bytes): what a page means does not depend on it, but
            its strides say whether heads or tokens come first.
    """
    pages, slots, size, content = kv_cache.shape
    by_heads = kv_cache.stride()[1:] == (size * content, content, 1)
    if not by_heads and kv_cache.stride()[1:] != (content, slots * content, 1):
        raise ValueError(f"kv_cache: has strides {tuple(kv_cache.stride())}; pages of nvfp4 are dense: "
                         f"(…, {size * content}, {content}, 1) or (…, {content}, {slots * content}, 1)")
    heads = slots // 2

    def part(begin, columns):
        of_token, of_head = (columns, size * columns) if by_heads else (heads * columns, columns)
        return kv_cache.as_strided((pages, size, heads, columns), (kv_cache.stride(0), of_token, of_head, 1),
                                   kv_cache.storage_offset() + heads * size * begin)

    numbers = content * 8 // 9
    k, v = (part(side * content, numbers) for side in (0, 1))
    return k, v, *(part(side * content + numbers, content - numbers) for side in (0, 1))
