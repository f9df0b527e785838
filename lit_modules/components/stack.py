"""Stacks of Transformer layers (Vaswani et al. 2017, figure 1). The only reader of the page of choices."""

from jaxtyping import Float
from torch import Tensor, nn

from ..choices import Arch
from .attention import SCORE_DIVISOR, CrossAttention, KVCache, SelfAttention
from .feed_forward import FeedForward
from .masks import Mask
from .residual import NORM

Stream = Float[Tensor, "batch position d_model"]
Memory = Float[Tensor, "batch key d_model"]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each joined to the stream by the norm's formula."""

    def __init__(self, arch: Arch) -> None:
        super().__init__()
        self.self_attention = SelfAttention(**attention_sizes(arch))
        self.feed_forward = FeedForward(d_model=arch.d_model, d_ff=arch.inner, activation=arch.activation)
        self.residuals = residuals(arch, 2)

    def forward(self, x: Stream, mask: Mask) -> Stream:
        attended, fed = self.residuals
        x = attended(x, lambda x: self.self_attention(x, mask))
        return fed(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, attention over the memory, feed-forward network."""

    def __init__(self, arch: Arch) -> None:
        super().__init__()
        self.self_attention = SelfAttention(**attention_sizes(arch))
        self.cross_attention = CrossAttention(**attention_sizes(arch))
        self.feed_forward = FeedForward(d_model=arch.d_model, d_ff=arch.inner, activation=arch.activation)
        self.residuals = residuals(arch, 3)

    def forward(self, x: Stream, memory: Memory, mask: Mask, memory_mask: Mask, cache: KVCache) -> Stream:
        attended, crossed, fed = self.residuals
        x = attended(x, lambda x: self.self_attention(x, mask, cache))
        x = crossed(x, lambda x: self.cross_attention(x, memory, memory_mask, cache))
        return fed(x, self.feed_forward)


class LoneDecoderLayer(nn.Module):
    """A decoder layer without attention over the memory: the source cannot reach it."""

    def __init__(self, arch: Arch) -> None:
        super().__init__()
        self.self_attention = SelfAttention(**attention_sizes(arch))
        self.feed_forward = FeedForward(d_model=arch.d_model, d_ff=arch.inner, activation=arch.activation)
        self.residuals = residuals(arch, 2)

    def forward(self, x: Stream, memory: Memory, mask: Mask, memory_mask: Mask, cache: KVCache) -> Stream:
        attended, fed = self.residuals
        x = attended(x, lambda x: self.self_attention(x, mask, cache))
        return fed(x, self.feed_forward)


DECODER_LAYER = {"present": DecoderLayer, "absent": LoneDecoderLayer}


class Encoder(nn.Module):
    """n_layers encoder layers with independent weights, and the final norm that the norm's formula asks for."""

    def __init__(self, arch: Arch) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(arch) for _ in range(arch.n_layers))
        self.final_norm = NORM[arch.norm].final_norm(arch.d_model)

    def forward(self, x: Stream, mask: Mask) -> Stream:
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)


class Decoder(nn.Module):
    """n_layers decoder layers. With caches from `new_caches` it takes the newest positions of a sequence alone.

    Args:
        cross_attention: present, or absent (a language model that never hears the source).
    """

    def __init__(self, arch: Arch, cross_attention: str = "present") -> None:
        super().__init__()
        self.layers = nn.ModuleList(DECODER_LAYER[cross_attention](arch) for _ in range(arch.n_layers))
        self.final_norm = NORM[arch.norm].final_norm(arch.d_model)

    def new_caches(self) -> list[KVCache]:
        return [KVCache() for _ in self.layers]

    def forward(
        self, x: Stream, memory: Memory, mask: Mask, memory_mask: Mask, caches: list[KVCache] | None = None
    ) -> Stream:
        for layer, cache in zip(self.layers, caches or self.new_caches(), strict=True):
            x = layer(x, memory, mask, memory_mask, cache)
        return self.final_norm(x)


def attention_sizes(arch: Arch) -> dict[str, int | float]:
    n_heads, d_k = arch.heads
    scale, dropout = 1 / SCORE_DIVISOR[arch.score_divisor](d_k), arch.dropout_of("weights")
    return {"d_model": arch.d_model, "n_heads": n_heads, "d_k": d_k, "scale": scale, "dropout": dropout}


def residuals(arch: Arch, count: int) -> nn.ModuleList:
    return nn.ModuleList(NORM[arch.norm](arch.d_model, arch.dropout_of("sublayers")) for _ in range(count))
