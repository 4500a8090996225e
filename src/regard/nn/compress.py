"""Are keys and values shortened first? A compressor maps (k, v, layout) to fewer keys and the layout they have.

Padding counts as zero. A compressed key stands at the last position that it covers, so that a query which may see it
may see all of it; it is real if anything that it covers is.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import Choice, at_least, choice, option
from regard.errors import RegardError
from regard.nn.layout import Layout
from regard.nn.sizes import Sizes


class Compressor(nn.Module):
    """Keys and values as they are: no compression."""

    shortens = False  # whether there are fewer keys afterwards
    stride = 1  # how many neighbours become one key, if each does so apart from all others

    def forward(self, k: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Layout]:
        return k, v, layout


class Linformer(Compressor):
    """k' = Ek, v' = Fv: every compressed key is a mixture of all positions."""

    shortens = True

    def __init__(self, heads: int, size: int, length: int, key_value: bool) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.empty(heads, size, length))  # E
        self.value = self.key if key_value else nn.Parameter(torch.empty(heads, size, length))  # F
        self.reset_own()

    def reset_own(self) -> None:
        """N(0, 1/size), under which dot products stay what they are on average (Johnson-Lindenstrauss)."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)

    def forward(self, k: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Layout]:
        length, room = layout.length, self.key.shape[2]
        if length > room:
            raise RegardError(f"linformer has a length of {room}, and this input has {length} tokens; raise it")
        _one_document("linformer", layout)
        k, v = _without_padding(layout, k, v)
        k, v = self.key[:, :, :length] @ k, self.value[:, :, :length] @ v  # [B, H, size, d]
        size, position, real = k.shape[2], layout.position, layout.real
        if real is not None:
            position, real = position.where(real, 0), real.any(-1, keepdim=True).expand(-1, size)
        position = position.amax(-1, keepdim=True).expand(-1, size)  # the last one covered, padding aside
        return k, v, Layout(position, layout.end, real)


class StridedConvolution(Compressor):
    """Every `factor` neighbours become one, within a head."""

    shortens = True

    def __init__(self, sizes: Sizes, factor: int) -> None:
        super().__init__()
        self.factor = self.stride = factor
        self.key = nn.Parameter(torch.empty(sizes.heads, factor * sizes.d_k, sizes.d_k))
        self.value = nn.Parameter(torch.empty(sizes.heads, factor * sizes.d_v, sizes.d_v))
        self.key_bias = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.d_k))
        self.value_bias = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.d_v))
        self.reset_own()

    def reset_own(self) -> None:
        for weight in (self.key, self.value):
            for head in weight:
                nn.init.xavier_uniform_(head)
        for bias in (self.key_bias, self.value_bias):
            nn.init.zeros_(bias)

    def forward(self, k: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Layout]:
        _one_document("strided_conv", layout)
        k, v = _without_padding(layout, k, v)
        k = self._blocks(k) @ self.key + self.key_bias  # [B, H, ⌈K/factor⌉, d_k]
        v = self._blocks(v) @ self.value + self.value_bias
        last = self.factor - 1  # of a block; of one that is not full, the last still to come
        position = layout.position[:, :: self.factor] + last
        real = layout.real
        if real is not None:
            real = F.pad(real, (0, -real.shape[1] % self.factor)).unflatten(1, (-1, self.factor)).any(-1)
        stride = self.factor if layout.right_padded else 1
        return k, v, Layout(position, layout.end + last, real, stride=stride)

    def _blocks(self, x: Tensor) -> Tensor:
        """[B, H, K, d] -> [B, H, ⌈K/factor⌉, factor·d], filled up with zeros."""
        x = F.pad(x, (0, 0, 0, -x.shape[2] % self.factor))
        return x.unflatten(2, (-1, self.factor)).flatten(3)


def _without_padding(layout: Layout, *sides: Tensor) -> list[Tensor]:
    if layout.real is None:
        return list(sides)
    return [side.masked_fill(~layout.real[:, None, :, None], 0.0) for side in sides]


def _one_document(kind: str, layout: Layout) -> None:
    if layout.document is not None:
        raise RegardError(f"{kind} would mix the documents that are packed in one row; give each its own row")


# --- the choices -------------------------------------------------------------------------------------------------


class CompressConfig(Choice, slot="compress"):
    must_define = ("build",)
    keeps_order: ClassVar[bool] = True  # so that patterns can tell what a key covers

    @property
    def shared_by_layers(self) -> bool:
        return False

    def check(self, role: str, longest: int) -> None:
        """Raise ValueError where an attention in this role, over at most `longest` keys, cannot have it."""

    def build(self, sizes: Sizes) -> Compressor:
        raise NotImplementedError


@choice("none", "—", "—", "—")
class NoCompressionConfig(CompressConfig):
    """Every key and value stays."""

    def build(self, sizes: Sizes) -> Compressor:
        return Compressor()


@choice("linformer", "M6", "k' = Ek, v' = Fv; E, F [size × length]", "Wang 2020, eq. 7")
class LinformerConfig(CompressConfig):
    """Keys and values are projected along the length to a fixed number; for encoders."""

    keeps_order: ClassVar[bool] = False

    length: int = option(512, "n, the longest input")
    size: int = option(128, "k, how many keys and values are left")
    sharing: Literal["none", "heads", "key_value", "layers"] = option(
        "heads", "who shares a projection: none, the heads of a layer, keys and values too, all layers too"
    )

    @property
    def shared_by_layers(self) -> bool:
        return self.sharing == "layers"

    def __post_init__(self) -> None:
        at_least(self, 1, "length", "size")

    def check(self, role: str, longest: int) -> None:
        if role != "encoder":
            raise ValueError(
                f"linformer belongs to the encoder, not {role}: it mixes all positions, so that a decoder would see "
                "the future and attention to the source could not be told by word; strided_conv keeps the order"
            )
        if longest > self.length:
            raise ValueError(
                f"linformer's length is {self.length}, shorter than the longest input of {longest} tokens "
                "(data.filters.max_length and the end); raise it, or lower max_length"
            )

    def build(self, sizes: Sizes) -> Compressor:
        """Section 4: `heads` means one E and one F a layer, `key_value` one E = F a layer, `layers` one for all."""
        heads = sizes.heads if self.sharing == "none" else 1
        return Linformer(heads, self.size, self.length, self.sharing in ("key_value", "layers"))


@choice("strided_conv", "M7", "k'_c = Σ_r W_r k_{c·factor + r} + b, v' alike", "Liu 2018, 4.2.3")
class StridedConvolutionConfig(CompressConfig):
    """A convolution makes one key and value of every few neighbours (memory-compressed attention).

    It may stand anywhere: no block is visible before its last position is.
    """

    factor: int = option(3, "how many neighbours become one: the kernel's size and its stride")

    def __post_init__(self) -> None:
        at_least(self, 2, "factor")

    def build(self, sizes: Sizes) -> Compressor:
        return StridedConvolution(sizes, self.factor)
