"""From a trained decoder to a sequence: token by token, or a beam of hypotheses (Vaswani et al. 2017, section 6.1).

All searches work on tensors, all sentences of a batch at once; a sentence that has ended leaves the batch.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Logits = Float[Tensor, "row vocabulary"]


@runtime_checkable
class Step(Protocol):
    """A decoder that remembers what it has seen. A row is a sentence, or one of its `width` neighbouring hypotheses."""

    def __call__(self, token: Int[Tensor, "row 1"], position: int) -> Logits:
        """The logits after the newest token of each row, which stands at `position`."""

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Goes on with these rows alone."""

    def reorder(self, rows: Int[Tensor, " row"]) -> None:
        """Row i goes on from what row rows[i], of the same sentence, has seen."""


def one_by_one(
    step: Step,
    choose: Callable[[Logits], Int[Tensor, " row"]],
    *,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    limits: Int[Tensor, " batch"],
) -> Int[Tensor, "batch length"]:
    """Chooses each token once and for all, until every sentence has ended or has its limit of tokens.

    Args:
        choose: from the logits to a token of each row, `likeliest` for greedy decoding.
        limits: the most tokens of each sentence, EOS included, at least 1.

    Returns:
        The tokens after BOS: EOS included where it came, PAD after it.
    """
    tokens = torch.full((len(limits), int(limits.max())), pad_id, device=limits.device)
    alive = torch.arange(len(limits), device=limits.device)
    newest = torch.full_like(alive, bos_id)
    for position in range(tokens.shape[1]):
        newest = choose(step(newest[:, None], position))
        tokens[alive, position] = newest
        going = ((newest != eos_id) & (limits[alive] > position + 1)).nonzero().flatten()
        if len(going) == 0:
            break
        if len(going) < len(alive):
            alive, newest = alive[going], newest[going]
            step.keep(going)
    return tokens[:, : position + 1]


def likeliest(logits: Logits) -> Int[Tensor, " row"]:
    """Greedy decoding's choice."""
    return logits.argmax(dim=-1)


def drawn(logits: Logits, *, temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> Tensor:
    """A token of each row from softmax(logits / temperature), cut to the top k, then to the nucleus p."""
    logits = nucleus(top(logits.float() / temperature, top_k), top_p)
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0]


def top(logits: Logits, k: int) -> Logits:
    """-inf but for the k largest of a row; 0 keeps all (Fan et al. 2018, section 5.4)."""
    if not 0 < k < logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k, dim=-1).values[:, -1:], -torch.inf)


def nucleus(logits: Logits, p: float) -> Logits:
    """-inf but for the smallest set of likeliest tokens that reaches p (Holtzman et al. 2020, section 3.1)."""
    if p >= 1:
        return logits
    values, order = logits.sort(dim=-1, descending=True)
    share = values.softmax(dim=-1)
    outside = share.cumsum(dim=-1) - share >= p  # what stands before a token reaches p already
    return logits.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), -torch.inf)


def beam(
    step: Step,
    *,
    width: int,
    length_penalty: float,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    limits: Int[Tensor, " batch"],
) -> Int[Tensor, "batch length"]:
    """The best of the hypotheses that a beam has ended (Wu et al. 2016, equation 14, without coverage).

    A hypothesis of n tokens, EOS included, has the score log p / ((5 + n) / 6)^length_penalty. At every step the
    `width` likeliest continuations of a sentence's hypotheses are looked at: those with EOS have ended. The `width`
    likeliest ones without EOS go on. A sentence is done when

    - `width` of its hypotheses have ended, or
    - none that lives can beat the best that has ended: its log p, which can only fall, divided by the penalty at the
      sentence's limit, is no better; this saves time and never changes the answer, or
    - it has its limit of tokens; only if none has ended by then, the likeliest one is taken without an EOS.

    A width of 1 is greedy decoding. Returns as `one_by_one` does.
    """
    batch, longest, device = len(limits), int(limits.max()), limits.device

    def penalty(length: Tensor | int) -> Tensor | float:
        return ((5 + length) / 6) ** length_penalty

    best = torch.full((batch, longest), pad_id, device=device)
    best_score = torch.full((batch,), -torch.inf, device=device)
    ended = torch.zeros(batch, dtype=torch.long, device=device)
    alive = torch.arange(batch, device=device)  # the sentences that are still searched
    hypotheses = torch.empty((batch, width, 0), dtype=torch.long, device=device)
    log_p = torch.full((batch, width), -torch.inf, device=device)
    log_p[:, 0] = 0.0  # one empty hypothesis
    newest = torch.full((batch, width), bos_id, device=device)

    for position in range(longest):
        logits = step(newest.flatten()[:, None], position).float()
        continued = log_p[..., None] + logits.log_softmax(dim=-1).unflatten(0, (len(alive), width))
        total, candidate = continued.flatten(1).topk(2 * width)  # at most `width` of them are ends
        parent, token = candidate // logits.shape[-1], candidate % logits.shape[-1]

        # some have ended
        ends = (token == eos_id) & total.isfinite()
        ends[:, width:] = False
        score, which = (total / penalty(position + 1)).masked_fill(~ends, -torch.inf).max(dim=1)
        better = (score > best_score[alive]).nonzero().flatten()
        best_score[alive[better]] = score[better]
        best[alive[better]] = pad_id
        best[alive[better], :position] = hypotheses[better, parent[better, which[better]]]
        best[alive[better], position] = eos_id
        ended[alive] += ends.sum(dim=1)

        # the others go on
        log_p, chosen = total.masked_fill(token == eos_id, -torch.inf).topk(width)
        parent, newest = parent.gather(1, chosen), token.gather(1, chosen)
        past = hypotheses.gather(1, parent[..., None].expand(-1, -1, position))
        hypotheses = torch.cat([past, newest[..., None]], dim=2)

        # sentences that are done leave
        limit = limits[alive]
        cut = ((limit == position + 1) & (best_score[alive] == -torch.inf)).nonzero().flatten()
        best[alive[cut], : position + 1] = hypotheses[cut, 0]
        hopeless = log_p[:, 0] / penalty(limit) <= best_score[alive]
        going = ~((ended[alive] >= width) | hopeless | (limit <= position + 1))
        if not going.any():
            break
        first = torch.arange(0, len(alive) * width, width, device=device)[:, None]  # each sentence's first row
        step.reorder((first + parent).flatten())
        if not going.all():
            step.keep((first + torch.arange(width, device=device))[going].flatten())
            alive, log_p, newest, hypotheses = alive[going], log_p[going], newest[going], hypotheses[going]
    return best[:, : position + 1]
