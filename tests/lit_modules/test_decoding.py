"""Searches against exhaustive enumeration, Hugging Face's warpers, one another, and decoding without a cache."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.tokenizer import BOS, EOS, PAD
from lit_modules.choices import Arch
from lit_modules.components.decoding import beam, drawn, likeliest, nucleus, one_by_one, top
from lit_modules.generation import Decoding, search
from lit_modules.optimization import Optim
from lit_modules.translation import Continuation, Translation

ENDS = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
VOCAB = 23


class Table:
    """A random language model of `vocab` tokens: the logits depend on the sentence and on its whole history."""

    def __init__(self, sentences, vocab, rows=1, seed=0):
        self.vocab, self.seed = vocab, seed
        self.history = [(i,) for i in range(sentences) for _ in range(rows)]
        self.sizes = []

    def logits(self, history):
        generator = torch.Generator().manual_seed(hash((self.seed, *history)) % 2**31)
        logits = torch.randn(self.vocab, generator=generator) * 2
        logits[[PAD, BOS]] = -torch.inf
        return logits

    def __call__(self, token, position):
        self.sizes.append(len(token))
        assert len(token) == len(self.history)
        if position:
            self.history = [(*h, int(t)) for h, t in zip(self.history, token[:, 0], strict=True)]
        return torch.stack([self.logits(h) for h in self.history])

    def keep(self, rows):
        self.history = [self.history[i] for i in rows.tolist()]

    reorder = keep


def score(table, sentence, tokens, alpha):
    log_p, history = 0.0, (sentence,)
    for token in tokens:
        log_p += float(table.logits(history).log_softmax(0)[token])
        history = (*history, token)
    return log_p / ((5 + len(tokens)) / 6) ** alpha


def real(row):
    return [t for t in row.tolist() if t != PAD]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_exhaustive_optimum(alpha, seed):
    """Three words and EOS, at most four tokens: all 1 + 3 + 9 + 27 ended sequences are enumerated."""
    vocab, limit, sentences = 7, 4, 3
    words = [t for t in range(vocab) if t not in (PAD, BOS, EOS)][:3]
    table = Table(sentences, vocab, rows=200, seed=seed)
    allowed = table.logits

    def few(history):
        logits = allowed(history)
        logits[[t for t in range(vocab) if t not in (EOS, *words)]] = -torch.inf
        return logits

    table.logits = few
    found = beam(table, width=200, length_penalty=alpha, limits=torch.full((sentences,), limit), **ENDS)
    for sentence in range(sentences):
        ended = [(*body, EOS) for n in range(limit) for body in itertools.product(words, repeat=n)]
        best = max(ended, key=lambda tokens, s=sentence: score(table, s, tokens, alpha))
        assert tuple(real(found[sentence])) == best


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(alpha, seed):
    limits = torch.tensor([9, 3, 6, 1])
    greedy = one_by_one(Table(4, 8, seed=seed), likeliest, limits=limits, **ENDS)
    narrow = beam(Table(4, 8, seed=seed), width=1, length_penalty=alpha, limits=limits, **ENDS)
    assert [real(r) for r in narrow] == [real(r) for r in greedy]


def test_a_weak_model_may_write_padding_in_the_middle():
    """It takes a place like any other token: greedy and a beam of one agree on it."""

    class Padding(Table):
        def logits(self, history):
            return torch.eye(8)[[5, PAD, 6, EOS][len(history) - 1]] * 9

    limits = torch.tensor([6])
    assert one_by_one(Padding(1, 8), likeliest, limits=limits, **ENDS).tolist() == [[5, PAD, 6, EOS]]
    assert beam(Padding(1, 8), width=1, length_penalty=0.6, limits=limits, **ENDS).tolist() == [[5, PAD, 6, EOS]]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 5), alpha=st.sampled_from([0.0, 0.6, 1.0]))
def test_a_sentence_does_not_depend_on_its_batch_mates(seed, width, alpha):
    limits = torch.tensor([7, 2, 10])
    together = beam(Table(3, 8, rows=width, seed=seed), width=width, length_penalty=alpha, limits=limits, **ENDS)
    for i in range(3):
        alone = Table(3, 8, rows=width, seed=seed)
        alone.history = [(i,)] * width
        one = beam(alone, width=width, length_penalty=alpha, limits=limits[i : i + 1], **ENDS)
        assert real(one[0]) == real(together[i])


def test_the_early_stop_never_changes_the_answer():
    """A reference in plain Python without the second rule: same candidates, same ends."""
    width, alpha = 3, 0.6
    for seed in range(30):
        found = beam(Table(1, 9, rows=width, seed=seed), width=width, length_penalty=alpha, limits=torch.tensor([8]), **ENDS)
        table, live, ended = Table(1, 9, seed=seed), [((), 0.0)], []
        for n in range(1, 9):
            grown = [((*h, t), p + float(lp)) for h, p in live for t, lp in enumerate(table.logits((0, *h)).log_softmax(0)) if lp > -torch.inf]
            grown.sort(key=lambda hp: -hp[1])
            ended += [(h, p / ((5 + n) / 6) ** alpha) for h, p in grown[:width] if h[-1] == EOS]
            live = [(h, p) for h, p in grown if h[-1] != EOS][:width]
            if len(ended) >= width:
                break
        best = max(ended, key=lambda hp: hp[1])[0] if ended else live[0][0]
        assert tuple(real(found[0])) == best, seed


def test_finished_sentences_leave_the_batch_and_limits_hold():
    for rows, run in ((1, lambda t, limits: one_by_one(t, likeliest, limits=limits, **ENDS)),
                      (2, lambda t, limits: beam(t, width=2, length_penalty=0.6, limits=limits, **ENDS))):  # fmt: skip
        table, limits = Table(4, 30, rows=rows), torch.tensor([2, 9, 5, 5])
        found = run(table, limits)
        assert all(len(real(row)) <= limit for row, limit in zip(found, limits.tolist(), strict=True))
        assert table.sizes[0] == 4 * rows and table.sizes == sorted(table.sizes, reverse=True)
        assert table.sizes[2] <= 3 * rows and len(table.sizes) <= 9


# ---- drawing


def test_top_k_and_nucleus_equal_hugging_faces():
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    logits = torch.randn(50, 40) * 3
    for k in (1, 3, 39):
        assert torch.equal(top(logits, k), TopKLogitsWarper(k)(None, logits))
    assert torch.equal(top(logits, 0), logits)
    for p in (0.1, 0.5, 0.9, 0.99):
        assert torch.equal(nucleus(logits, p), TopPLogitsWarper(p)(None, logits))
    assert torch.equal(nucleus(logits, 1.0), logits)


def test_the_nucleus_by_hand():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert nucleus(logits, 0.7).isfinite().tolist() == [[True, True, False, False]]
    assert nucleus(logits, 0.85).isfinite().tolist() == [[True, True, True, False]]


def test_draws_have_the_right_frequencies():
    probabilities = torch.tensor([0.5, 0.3, 0.2])
    logits = probabilities.log().expand(60_000, 3)
    for temperature in (1.0, 2.0):
        tokens = drawn(logits, temperature=temperature, top_k=0, top_p=1.0, generator=torch.Generator().manual_seed(1))
        expected = probabilities ** (1 / temperature) / (probabilities ** (1 / temperature)).sum()
        torch.testing.assert_close(tokens.bincount() / 60_000, expected, atol=0.01, rtol=0)
    assert (drawn(logits, temperature=1.0, top_k=1, top_p=1.0, generator=torch.Generator()) == 0).all()


# ---- on the model


def model(**choices):
    torch.manual_seed(0)
    arch = Arch(d_model=12, n_heads=3, d_ff=20, n_layers=2, dropout=0.0)
    return Translation(arch=arch, optim=Optim(lr=1e-2, warmup_steps=2), vocab_size=VOCAB, **choices).eval()


def sources():
    source = torch.randint(4, VOCAB, (3, 7))
    source[1, 4:] = PAD
    return source


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "none"])
@pytest.mark.parametrize("width", [1, 3])
def test_cached_logits_equal_uncached_ones_through_reordering_and_leaving(position, width):
    """Every step of a beam search: the newest logits of every row, and a pass over its whole history without a cache."""
    network, source = model(position=position).network, sources()
    step = Continuation(network, source, width)
    rows, history, compared = source.repeat_interleave(width, 0), torch.full((3 * width, 0), 0), 0

    class Watched:
        def __call__(self, token, at):
            nonlocal history, compared
            history = torch.cat([history, token], dim=1)
            got = step(token, at)
            torch.testing.assert_close(got, network(rows, history)[:, -1], atol=1e-5, rtol=1e-5)
            compared += len(got)
            return got

        def keep(self, kept):
            nonlocal history, rows
            history, rows = history[kept], rows[kept]
            step.keep(kept)

        def reorder(self, order):
            nonlocal history
            history = history[order]
            step.reorder(order)

    beam(Watched(), width=width, length_penalty=0.6, limits=torch.tensor([6, 3, 9]), **ENDS)
    assert compared >= 3 * width * 2


def test_the_memory_is_encoded_and_projected_once():
    built, calls = model(), []
    built.network.encoder.register_forward_hook(lambda *_: calls.append("encoder"))
    for layer in built.network.decoder.layers:
        layer.cross_attention.key_value.register_forward_hook(lambda *_: calls.append("memory"))
    built.translate(sources(), Decoding(method="beam"))
    assert calls == ["encoder", "memory", "memory"]


@pytest.mark.parametrize("changed", [
    {"method": "greedy"}, {"method": "sample"}, {"beam_width": 1},
])  # fmt: skip
def test_every_argument_of_a_beam_changes_translations(changed):
    assert differs({"method": "beam"}, {"method": "beam", **changed})


def test_a_larger_penalty_prefers_longer_translations():
    lengths = []
    for alpha in (0.0, 1.0, 3.0):
        table, limits = Table(40, 8, rows=4), torch.full((40,), 12)
        found = beam(table, width=4, length_penalty=alpha, limits=limits, **ENDS)
        lengths.append(int((found != PAD).sum()))
    assert lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize("changed", [{"temperature": 0.1}, {"top_k": 2}, {"top_p": 0.3}])
def test_every_argument_of_drawing_changes_translations(changed):
    assert differs({"method": "sample"}, {"method": "sample", **changed})


def differs(one, other):
    built, source = model(), torch.randint(4, VOCAB, (20, 7))
    built.network.output.weight.data *= 3
    first, second = (built.translate(source, Decoding(**d)) for d in (one, other))
    return first.shape != second.shape or not torch.equal(first, second)


def test_sampling_leaves_trainings_random_numbers_alone_and_repeats():
    built, source = model(), sources()
    before = torch.get_rng_state()
    first = built.translate(source, Decoding(method="sample"))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(built.translate(source, Decoding(method="sample")), first)


@pytest.mark.parametrize("wrong", [
    {"beam_width": 0}, {"length_penalty": -1.0}, {"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5},
])  # fmt: skip
def test_values_without_meaning_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} .* must be"):
        Decoding(**wrong)


def test_the_penalty_by_hand():
    """Wu et al. 2016: ((5 + 7) / 6)^0.6 = 1.5157 for seven tokens."""
    assert ((5 + 7) / 6) ** 0.6 == pytest.approx(1.5157, abs=1e-4)
    assert search(Decoding(method="beam")).keywords == {"width": 4, "length_penalty": 0.6}
    assert math.isclose(score(Table(1, 8), 0, (4, 4, 4, 4, 4, 4, EOS), 0.6) * 1.5157, score(Table(1, 8), 0, (4, 4, 4, 4, 4, 4, EOS), 0.0), rel_tol=1e-4)
