"""The page of choices: every decision that the models share, with its known values.

This is the one list of possible answers to "how is the Transformer built?". A sweep file names a key and a word
from here (`model.arch.norm: pre`); the parser refuses every other word; `components/stack.py` is the only reader.
The defaults are the base model of Vaswani et al. 2017 ("Attention Is All You Need"); a recipe states where it departs.

What one model alone has (its positions, its look-ahead mask, its objective, its patch size) is an argument of that
model and stands in its own file.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Arch:
    """The architecture of a stack of Transformer layers.

    Args:
        d_model: width of the residual stream.
        n_heads: attention heads h; the word `split` means d_model / d_k (h · d_k = d_model, section 3.2.2).
        d_k: width of one head's queries, keys and values; the word `split` means d_model / n_heads.
        d_ff: inner width of the feed-forward network (section 3.3); the word `fourfold` means 4 · d_model.
        n_layers: layers N of each stack, encoder and decoder alike, with independent weights.
        norm: where layer normalisation stands.
            post: LayerNorm(x + Sublayer(x)) (Vaswani et al. 2017, section 3.1).
            pre: x + Sublayer(LayerNorm(x)), one more norm at the end of the stack (Xiong et al. 2020, section 3).
        score_divisor: what q · k is divided by before the softmax (equation 1).
            sqrt_d_k: √d_k, which keeps Var(q · k / √d_k) at 1 when the components of q and k have variance 1.
            one: nothing, so that the scores' standard deviation grows as √d_k.
        activation: between the two linear maps of the feed-forward network.
            relu: max(0, x) (equation 2).
            gelu: x Φ(x) (Hendrycks and Gimpel 2016; BERT and ViT).
        dropout: probability P_drop (section 5.4).
        dropout_at: where it falls.
            all: in the three places of section 5.4 and of the authors' code, which are
            weights: the attention weights,
            sublayers: each sub-layer's output before it is added,
            embeddings: the sums of embeddings and positions,
            not_weights: the last two, as fairseq's Transformer has it.
            nowhere: as a dropout of 0.

    Raises:
        ValueError: if d_model, n_heads and d_k cannot agree; the message names the three.
    """

    d_model: int = 512
    n_heads: int | Literal["split"] = 8
    d_k: int | Literal["split"] = "split"
    d_ff: int | Literal["fourfold"] = 2048
    n_layers: int = 6
    norm: Literal["post", "pre"] = "post"
    score_divisor: Literal["sqrt_d_k", "one"] = "sqrt_d_k"
    activation: Literal["relu", "gelu"] = "relu"
    dropout: float = 0.1
    dropout_at: Literal["all", "weights", "sublayers", "embeddings", "not_weights", "nowhere"] = "all"

    def dropout_of(self, place: Literal["weights", "sublayers", "embeddings"]) -> float:
        """P_drop where it falls, 0 elsewhere."""
        falls = self.dropout_at in ("all", place) or (self.dropout_at == "not_weights" and place != "weights")
        return self.dropout if falls else 0.0

    def __post_init__(self) -> None:
        self.heads  # noqa: B018  an impossible head size is refused when the page is filled in, not later

    @property
    def inner(self) -> int:
        """d_ff as a number."""
        return 4 * self.d_model if self.d_ff == "fourfold" else self.d_ff

    @property
    def heads(self) -> tuple[int, int]:
        """(n_heads, d_k) as numbers, the word `split` resolved."""
        known = [size for size in (self.n_heads, self.d_k) if size != "split"]
        sizes = f"d_model {self.d_model}, n_heads {self.n_heads}, d_k {self.d_k}"
        if not known:
            raise ValueError(f"{sizes}: one of n_heads and d_k must be a number")
        if min(known) < 1:
            raise ValueError(f"{sizes}: n_heads and d_k must be at least 1")
        if len(known) == 2:
            return self.n_heads, self.d_k
        if self.d_model % known[0]:
            raise ValueError(f"{sizes}: {known[0]} does not divide d_model {self.d_model}")
        rest = self.d_model // known[0]
        return (rest, self.d_k) if self.n_heads == "split" else (self.n_heads, rest)
