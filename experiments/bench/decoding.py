"""How long a token takes, by its place in the sentence: with the cache, and by a pass over the whole past.

Same model, same tokens, turn about in one process. The model is untrained; nothing here depends on what it says.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.progress import track

from experiments.answer.render import as_terminal
from experiments.record import facts
from lit_modules.choices import Arch
from lit_modules.translation import Continuation, EncoderDecoder

SIZES = {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 512, "dropout": 0.0}
SENTENCES, SOURCE, VOCAB = 16, 20, 8000
PLACES = (16, 32, 64, 128, 256, 512)
NEAR = 4  # tokens that are timed before each place
RESULTS = Path(__file__).parent / "results" / "decoding.json"


@torch.no_grad()
def measure(rounds: int) -> dict[str, dict[int, float]]:
    """Milliseconds for one token of each sentence of the batch, medians over the rounds and the tokens near a place."""
    torch.manual_seed(0)
    network = EncoderDecoder(
        arch=Arch(**SIZES), vocab_size=VOCAB, position="sinusoidal", look_ahead="masked", weight_tying="all",
        cross_attention="present", max_length=PLACES[-1],
    ).eval()  # fmt: skip
    source = torch.randint(4, VOCAB, (SENTENCES, SOURCE))
    written = torch.randint(4, VOCAB, (SENTENCES, PLACES[-1]))
    timed = {place: range(place - NEAR, place) for place in PLACES}
    found: dict[str, dict[int, list[float]]] = {way: {p: [] for p in PLACES} for way in ("cached", "uncached")}
    for _ in track(range(rounds), description="decoding", transient=True):
        step = Continuation(network, source)
        memory, mask = network.encode(source)

        def whole_past(at: int, memory=memory, mask=mask) -> None:
            past = written[:, : at + 1]
            x = network.target_position(network.target_embedding(past))
            network.output(network.decoder(x, memory, network.target_mask(past), mask)[:, -1])

        for at in range(PLACES[-1]):
            milliseconds = clocked(lambda at=at, step=step: step(written[:, at : at + 1], at))
            for place in (p for p in PLACES if at in timed[p]):
                found["cached"][place].append(milliseconds)
                found["uncached"][place].append(clocked(lambda at=at, run=whole_past: run(at)))
    return {way: {place: statistics.median(ms) for place, ms in by_place.items()} for way, by_place in found.items()}


def clocked(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - began)


def main(rounds: int) -> None:
    """Prints the table and keeps it under results/."""
    torch.set_num_threads(1)
    ms = measure(rounds)
    heads = ["token", "with the cache, ms", "without, ms", "ratio"]
    print(as_terminal(heads, [
        [str(p), f"{ms['cached'][p]:.2f}", f"{ms['uncached'][p]:.2f}", f"{ms['uncached'][p] / ms['cached'][p]:.1f}"]
        for p in PLACES
    ]))  # fmt: skip
    RESULTS.write_text(json.dumps({
        "sizes": SIZES, "sentences": SENTENCES, "source": SOURCE, "vocabulary": VOCAB, "rounds": rounds, "threads": 1,
        "milliseconds": ms, "hardware": facts.hardware(on_gpu=False), "versions": facts.versions(),
        "commit": facts.commit(), "date": time.strftime("%F"),
    }, indent=1) + "\n")  # fmt: skip
    print(f"kept in {RESULTS.name}: one token of each of {SENTENCES} sentences, one thread")
