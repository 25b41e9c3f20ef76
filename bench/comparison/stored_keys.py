"""8- and 4-bit keys and values with scales, dequantized exactly to bf16: other libraries' bf16 caches hold the same
numbers."""

from dataclasses import dataclass

KINDS = ("int8", "int4", "nvfp4", "mxfp4")
#: Columns per one-byte scale, and the bytes of two such scales, 1/2 and 1.
BLOCKS = {"nvfp4": (16, (0x30, 0x38)), "mxfp4": (32, (126, 127))}
SCALES = {"int8": 1 / 32, "int4": 1 / 2}  # of tokens: powers of two, so that products are exact
ZERO_POINT = 8  # of int4
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def bytes_of_row(kind, head_dim):
    """Bytes of a head's row, including scales."""
    if kind in BLOCKS:
        return head_dim // 2 + head_dim // BLOCKS[kind][0]
    return head_dim // (1 if kind == "int8" else 2) + 4


@dataclass
class StoredRows:
    """rows (…, heads, bytes): uint8; tokens: fp32 (…, heads), or None; blocks: uint8 (…, heads, blocks), or None."""

    kind: str
    rows: "torch.Tensor"
    tokens: "torch.Tensor | None" = None
    blocks: "torch.Tensor | None" = None

    def numbers(self, index=...):
        """Dequantized rows at an index, in bf16."""
        import torch

        rows = self.rows[index]
        if self.kind == "int8":
            return (rows.view(torch.int8).float() * SCALES["int8"]).bfloat16()
        codes = torch.stack([rows & 15, rows >> 4], -1).flatten(-2)
        if self.kind == "int4":
            return ((codes.float() - ZERO_POINT) * SCALES["int4"]).bfloat16()
        block, (half, _) = BLOCKS[self.kind]
        magnitudes = torch.tensor(E2M1, device=rows.device)[(codes & 7).long()]
        signed = torch.where(codes > 7, -magnitudes, magnitudes).unflatten(-1, (-1, block))
        scales = torch.where(self.blocks[index] == half, 0.5, 1.0)
        return (signed * scales[..., None]).flatten(-2).bfloat16()


def store(kind, shape, device, generator, inline=False):
    """Random rows (…, heads, head_dim); with `inline`, token scales follow the elements of their row."""
    import torch

    head_dim = shape[-1]
    width = head_dim if kind == "int8" else head_dim // 2
    x = torch.randn(*shape, device=device, dtype=torch.bfloat16, generator=generator)
    tokens = blocks = None
    if kind == "int8":
        rows = (x.float() / SCALES[kind]).round().clamp(-127, 127).to(torch.int8).view(torch.uint8)
    else:
        if kind == "int4":
            codes = ((x.float() / SCALES[kind]).round() + ZERO_POINT).clamp(0, 15).to(torch.uint8)
        else:
            middles = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], device=device)
            codes = torch.bucketize(x.float().abs(), middles).to(torch.uint8) | (x < 0).to(torch.uint8) << 3
            block, bytes_ = BLOCKS[kind]
            chosen = torch.randint(0, 2, (*shape[:-1], head_dim // block), device=device, generator=generator)
            blocks = torch.tensor(bytes_, device=device, dtype=torch.uint8)[chosen]
        rows = codes[..., ::2] | codes[..., 1::2] << 4
    if kind in SCALES:
        scale = torch.tensor(SCALES[kind], device=device)
        scale = (scale.view(torch.int32) | (ZERO_POINT if kind == "int4" else 0)).view(torch.float32)
        if inline:
            memory = torch.empty(*shape[:-1], width + 4, dtype=torch.uint8, device=device)
            memory[..., :width] = rows
            memory[..., width:].copy_(scale.view(1).view(torch.uint8).expand(*shape[:-1], 4))
            rows, tokens = memory[..., :width], memory.view(torch.float32)[..., width // 4]
        else:
            tokens = scale.expand(shape[:-1]).contiguous()
    return StoredRows(kind, rows, tokens, blocks)
