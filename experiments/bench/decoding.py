"""Decoding: whole searches beside Hugging Face's, and how long a token takes by its place in the sentence.

Turn about in one process, with the cache and by a pass over the whole past. The models are untrained: every sentence is
made LONG tokens long, and nothing depends on what they say.
"""

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from datamodules.tokenizer import BOS, EOS, PAD
from experiments.answer.render import as_terminal
from lit_modules.choices import Arch
from lit_modules.components.decoding import Step
from lit_modules.generation import Decoding, search
from lit_modules.translation import Continuation, EncoderDecoder

from . import tables
from .tables import spread
from .training import keep
from .translation import marian

SIZES = {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 512, "dropout": 0.0}
SENTENCES, SOURCE, VOCAB = 16, 20, 8000
PLACES = (16, 32, 64, 128, 256, 512)
NEAR = 4  # tokens that are timed before each place
BATCH, LONG, WIDTH = 64, 20, 4  # of the searches: sentences, tokens of each, hypotheses


def untrained() -> EncoderDecoder:
    return EncoderDecoder(
        arch=Arch(**SIZES), vocab_size=VOCAB, position="sinusoidal", look_ahead="masked", weight_tying="all",
        cross_attention="present", max_length=PLACES[-1],
    ).eval()  # fmt: skip


@torch.no_grad()
def measure(rounds: int) -> dict[str, dict[int, float]]:
    """Milliseconds for one token of each sentence of the batch, medians over the rounds and the tokens near a place."""
    torch.manual_seed(0)
    network = untrained()
    source = torch.randint(4, VOCAB, (SENTENCES, SOURCE))
    written = torch.randint(4, VOCAB, (SENTENCES, PLACES[-1]))
    timed = {place: range(place - NEAR, place) for place in PLACES}
    found: dict[str, dict[int, list[float]]] = {way: {p: [] for p in PLACES} for way in ("cached", "uncached")}
    for _ in track(range(rounds), description="decoding", transient=True):
        steps = {"cached": Continuation(network, source), "uncached": WholePast(network, source)}
        for at in range(PLACES[-1]):
            places = [p for p in PLACES if at in timed[p]]
            steps["uncached"].past = written[:, :at]  # which a pass at every token would have left
            for way, step in steps.items():
                if way == "cached" or places:
                    milliseconds = clocked(lambda at=at, step=step: step(written[:, at : at + 1], at))
                    for place in places:
                        found[way][place].append(milliseconds)
    return {way: {place: statistics.median(ms) for place, ms in by_place.items()} for way, by_place in found.items()}


def clocked(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - began)


class WholePast(Continuation):
    """Without the cache: every token is a pass over all that has been written."""

    def __init__(self, network: EncoderDecoder, source: Tensor, rows: int = 1) -> None:
        super().__init__(network, source, rows)
        self.past = torch.empty(len(source) * rows, 0, dtype=torch.long)

    def __call__(self, token: Tensor, position: int) -> Tensor:
        self.past, network = torch.cat([self.past, token], dim=1), self.network
        x = network.target_position(network.target_embedding(self.past))
        return network.output(network.decoder(x, self.memory, network.target_mask(self.past), self.mask)[:, -1])

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self.reorder(rows)

    def reorder(self, rows: Tensor) -> None:
        self.past = self.past.index_select(0, rows)


class Endless:
    """A `Step` that never ends a sentence, so that all have LONG tokens."""

    def __init__(self, step: Step) -> None:
        self.step, self.keep, self.reorder = step, step.keep, step.reorder

    def __call__(self, token: Tensor, position: int) -> Tensor:
        logits = self.step(token, position)
        logits[:, EOS] = -torch.inf
        return logits


def our_search(network: EncoderDecoder, width: int, cached: bool) -> Callable[[Tensor], Tensor]:
    decoding = Decoding(method="beam" if width > 1 else "greedy", beam_width=width)
    step = Continuation if cached else WholePast
    ids = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
    return lambda source: search(decoding)(
        Endless(step(network, source, width)), limits=torch.full((len(source),), LONG), **ids
    )


def their_search(model: nn.Module, width: int, cached: bool) -> Callable[[Tensor], Tensor]:
    return lambda source: model.generate(
        input_ids=source, attention_mask=(source != PAD).long(), num_beams=width, do_sample=False, use_cache=cached,
        min_new_tokens=LONG, max_new_tokens=LONG,
    )  # fmt: skip


@torch.no_grad()
def beside(rounds: int) -> list[dict[str, Any]]:
    """Sentences a second of ours and Hugging Face's, turn about: greedy and beam 4, with and without the cache."""
    network = untrained()
    sides = {"ours": (our_search, network)}
    with contextlib.suppress(ImportError):
        sides["Hugging Face"] = their_search, marian(VOCAB, "sdpa").eval()
    lengths = torch.randint(SOURCE // 2, SOURCE + 1, (BATCH,))
    source = torch.randint(5, VOCAB, (BATCH, SOURCE)).masked_fill(torch.arange(SOURCE) >= lengths[:, None], PAD)
    ways = [(name, width, cached) for width in (1, WIDTH) for cached in (True, False) for name in sides]
    found: dict[tuple, list[float]] = {way: [] for way in ways}
    for _ in track(range(rounds + 1), description="searching", transient=True):
        for name, width, cached in ways:
            make, model = sides[name]
            run = make(model, width, cached)
            assert run(source[:1]).shape[1] in (LONG, LONG + 1), "every sentence has the same length"
            found[name, width, cached].append(1000 * BATCH / clocked(lambda run=run: run(source)))
    lines = []
    for (name, width, cached), speeds in found.items():
        ours = found["ours", width, True][1:]
        ratio = spread([a / b for a, b in zip(ours, speeds[1:], strict=True)])
        lines.append({"side": name, "beam": width, "cached": cached, "per_second": spread(speeds[1:]), "ratio": ratio})
    return lines


def main(rounds: int) -> bool:
    """Prints both tables and keeps them under results/."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    searched = beside(rounds)
    found = {
        "sizes": SIZES, "sentences": SENTENCES, "source": SOURCE, "vocabulary": VOCAB, "rounds": rounds,
        "milliseconds": measure(rounds), "batch": BATCH, "length": LONG, "searched": searched,
    }  # fmt: skip
    print(as_terminal(*tables.decoding(found)))
    print(as_terminal(*tables.places(found)))
    return keep("decoding", found)
