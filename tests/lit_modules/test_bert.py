"""BERT and its fine-tuning beside Hugging Face's, with copied weights; masking by exact counts; the converter."""

import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from datamodules.tasks import IGNORED
from datamodules.tokenizer import BERT_SPECIALS, CLS, MASK, PAD, SEP
from lit_modules import pretrained
from lit_modules.bert import Bert
from lit_modules.choices import Arch
from lit_modules.components.masking import MASKING, fixed_noise, mask_tokens, maskable
from lit_modules.finetuning import Classification, QuestionAnswering, Tagging
from lit_modules.optimization import Optim

VOCAB, LENGTH = 40, 24
ARCH = Arch(d_model=24, n_heads=3, n_layers=2, d_ff=40, activation="gelu", dropout=0.0)
OPTIM = Optim(lr=1e-3, warmup_steps=1)
CONFIG = transformers.BertConfig(
    vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=PAD,
)  # fmt: skip
LENGTHS = (20, 17, 9)  # rounds to 3, 2 and 1 predictions


def bert(**more):
    torch.manual_seed(3)
    model = Bert(arch=ARCH, optim=OPTIM, vocab_size=VOCAB, max_length=LENGTH, **more)
    for parameter in model.parameters():  # biases and norms that a wrong copy would betray
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def rows(lengths=LENGTHS):
    torch.manual_seed(5)
    ids = torch.full((len(lengths), max(lengths)), PAD)
    segments = torch.zeros_like(ids)
    for row, segment, length in zip(ids, segments, lengths, strict=True):
        row[:length] = torch.randint(len(BERT_SPECIALS), VOCAB, (length,))
        row[0], row[length // 2], row[length - 1] = CLS, SEP, SEP
        segment[length // 2 + 1 : length] = 1
    continues = torch.zeros_like(ids, dtype=torch.bool)
    return {"ids": ids, "segments": segments, "continues": continues, "pair": torch.tensor([0, 1, 1][: len(lengths)]),
            "index": torch.arange(len(lengths))}  # fmt: skip


def theirs(model, kind):
    peer = kind(CONFIG).eval()
    weights = pretrained.to_hugging_face(model.state_dict(), ARCH.n_layers)
    missing, unexpected = peer.load_state_dict(weights, strict=False)
    assert not unexpected and not [name for name in missing if "position_ids" not in name]
    return peer


def heard(ids):
    return (ids != PAD).long()


def test_pre_training_equals_hugging_faces_logits_loss_and_gradients():
    """Rows of different lengths, so that each pair has a weight of its own."""
    model, batch = bert(), rows()
    noise = torch.rand(3, 20, 2)
    inputs, chosen = mask_tokens(batch["ids"], batch["continues"], noise, **model.how)
    assert chosen.sum(1).tolist() == [3, 2, 1]
    peer = theirs(model, transformers.BertForPreTraining)
    out = peer(inputs, token_type_ids=batch["segments"], attention_mask=heard(inputs))
    states = model.network(inputs, batch["segments"])
    torch.testing.assert_close(model.head(states[chosen]), out.prediction_logits[chosen], atol=1e-5, rtol=1e-5)
    pair = model.pair(model.network.summary(states, inputs))
    torch.testing.assert_close(pair, out.seq_relationship_logits, atol=1e-5, rtol=1e-5)
    of_pairs = F.cross_entropy(out.seq_relationship_logits, batch["pair"], reduction="none")
    wanted = F.cross_entropy(out.prediction_logits[chosen], batch["ids"][chosen])
    wanted = wanted + (of_pairs * torch.tensor([3, 2, 1]) / 6).sum()
    ours = model.loss(batch, noise)
    torch.testing.assert_close(ours.smoothed / ours.tokens, wanted, atol=1e-5, rtol=1e-5)
    (ours.smoothed / ours.tokens).backward()
    wanted.backward()
    gradients = pretrained.from_hugging_face({n: p.grad for n, p in peer.named_parameters()}, ARCH.n_layers)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-4, msg=name)


def test_the_loss_is_hugging_faces_own_where_every_row_predicts_as_many():
    model, batch = bert(), rows((23, 21))
    noise = torch.rand(2, 23, 2)
    inputs, chosen = mask_tokens(batch["ids"], batch["continues"], noise, **model.how)
    assert chosen.sum(1).tolist() == [3, 3]
    out = theirs(model, transformers.BertForPreTraining)(
        inputs, token_type_ids=batch["segments"], attention_mask=heard(inputs),
        labels=batch["ids"].masked_fill(~chosen, -100), next_sentence_label=batch["pair"],
    )  # fmt: skip
    ours = model.loss(batch, noise)
    torch.testing.assert_close(ours.smoothed / ours.tokens, out.loss, atol=1e-5, rtol=1e-5)


@pytest.fixture
def checkpoint(tmp_path):
    model = bert()
    vocabulary = BERT_SPECIALS + [f"w{i}" for i in range(VOCAB - len(BERT_SPECIALS))]
    tokenizer = pretrained.wordpiece(vocabulary, lower=True)
    parts = {"hyper_parameters": dict(model.hparams), "state_dict": model.state_dict()}
    torch.save(parts | {"data": {"tokenizer": tokenizer.to_str()}}, tmp_path / "bert.ckpt")
    return str(tmp_path / "bert.ckpt")


HEADS = [
    (Classification, transformers.BertForSequenceClassification, lambda b: torch.tensor([[0], [2], [1]]), 3,
     {"head.output.weight": "classifier.weight", "head.output.bias": "classifier.bias"}),
    (Tagging, transformers.BertForTokenClassification, lambda b: torch.where(b["ids"] > 20, b["ids"] % 3, IGNORED), 3,
     {"head.weight": "classifier.weight", "head.bias": "classifier.bias"}),
    (QuestionAnswering, transformers.BertForQuestionAnswering, lambda b: torch.tensor([[3, 5], [4, 4], [0, 0]]), 2,
     {"head.weight": "qa_outputs.weight", "head.bias": "qa_outputs.bias"}),
]  # fmt: skip


@pytest.mark.parametrize("ours, peer, label, n_labels, head", HEADS, ids=lambda v: getattr(v, "__name__", ""))
def test_fine_tuning_equals_hugging_faces_heads(ours, peer, label, n_labels, head, checkpoint):
    """Logits, loss and gradients, padding included."""
    batch = rows()
    label = label(batch)
    model = ours(optim=OPTIM, checkpoint=checkpoint, n_labels=n_labels, dropout=0.0).eval()
    config = transformers.BertConfig(**{**CONFIG.to_dict(), "num_labels": n_labels})
    other = peer(config).eval()
    weights = pretrained.to_hugging_face({**bert().state_dict(), **model.state_dict()}, ARCH.n_layers)
    own = other.state_dict()
    weights = {name: w for name, w in weights.items() if name in own}
    weights |= {theirs: model.state_dict()[name] for name, theirs in head.items()}
    assert set(weights) == set(own)
    other.load_state_dict(weights)
    wanted = {"token_type_ids": batch["segments"], "attention_mask": heard(batch["ids"])}
    if ours is QuestionAnswering:
        out = other(batch["ids"], **wanted, start_positions=label[:, 0], end_positions=label[:, 1])
        logits = torch.stack([out.start_logits, out.end_logits], 2)
        real = batch["ids"] != PAD
        torch.testing.assert_close(model.logits(batch)[real], logits[real], atol=1e-5, rtol=1e-5)
        # theirs lets padding be the answer: the loss is compared where there is none
        batch = {name: values[:1] for name, values in batch.items()}
        label = label[:1]
        out = other(batch["ids"], token_type_ids=batch["segments"], start_positions=label[:, 0], end_positions=label[:, 1])
    else:
        numbers = label.masked_fill(label == IGNORED, -100)
        out = other(batch["ids"], **wanted, labels=numbers[:, 0] if ours is Classification else numbers)
        real = (batch["ids"] != PAD) if ours is Tagging else slice(None)
        torch.testing.assert_close(model.logits(batch)[real], out.logits[real], atol=1e-5, rtol=1e-5)
    loss = model.training_loss(batch | {"label": label})
    mean = loss.smoothed / loss.tokens
    torch.testing.assert_close(mean, out.loss, atol=1e-5, rtol=1e-5)
    mean.backward()
    out.loss.backward()
    gradients = pretrained.from_hugging_face({n: p.grad for n, p in other.named_parameters()}, ARCH.n_layers)
    for name, parameter in model.network.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[f"network.{name}"], atol=1e-5, rtol=1e-4, msg=name)


# ---- the converter


def test_ours_is_opened_by_theirs_and_comes_back(tmp_path, checkpoint):
    ours = pretrained.read(checkpoint)
    folder = pretrained.write_hugging_face(ours, tmp_path / "folder")
    peer, report = transformers.BertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    batch, model = rows(), bert()
    out = peer.eval()(batch["ids"], token_type_ids=batch["segments"], attention_mask=heard(batch["ids"]))
    states = model.network(batch["ids"], batch["segments"])
    real = batch["ids"] != PAD
    torch.testing.assert_close(model.head(states)[real], out.prediction_logits[real], atol=1e-5, rtol=1e-5)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    assert tokenizer("W3 w7 strange")["input_ids"] == [CLS, *ours.tokenizer.encode("W3 w7 strange").ids, SEP]
    back = pretrained.read(str(folder))
    assert back.settings["arch"] == ours.settings["arch"] and back.network == ours.network
    assert back.tokenizer.get_vocab() == ours.tokenizer.get_vocab()
    assert set(back.weights) == set(ours.weights)
    for name, weight in ours.weights.items():
        assert torch.equal(back.weights[name], weight), name


@pytest.mark.parametrize("bare", [False, True], ids=["with heads", "BertModel"])
def test_theirs_with_another_order_of_the_vocabulary_gives_the_same_states(bare, tmp_path):
    """As in the published checkpoints, whose special tokens stand at 100 and after."""
    order = ["[PAD]", "a", "b", "##c", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(VOCAB - 8)]
    torch.manual_seed(4)
    peer = (transformers.BertModel if bare else transformers.BertForPreTraining)(CONFIG).eval()
    peer.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(order) + "\n")
    found = pretrained.read(str(tmp_path))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    theirs = torch.tensor([tokenizer("a bc w3 strange w7")["input_ids"]])
    ours = torch.tensor([[CLS, *found.tokenizer.encode("a bc w3 strange w7").ids, SEP]])
    assert [found.tokenizer.id_to_token(i) for i in ours[0]] == tokenizer.convert_ids_to_tokens(theirs[0])
    assert not torch.equal(ours, theirs)
    model = Bert(arch=found.arch, optim=OPTIM, **found.network).eval()
    model.network.load_state_dict(found.of("network"))
    encoder = peer if bare else peer.bert
    states = model.network(ours, torch.zeros_like(ours))
    torch.testing.assert_close(states, encoder(theirs).last_hidden_state, atol=1e-5, rtol=1e-5)
    if not bare:
        model.load_state_dict(found.weights)
        logits = model.head(model.network(ours, torch.zeros_like(ours)))[0]
        wanted = peer(theirs).prediction_logits[0]
        for piece, place in found.tokenizer.get_vocab().items():
            torch.testing.assert_close(logits[:, place], wanted[:, order.index(piece)], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("change, message", [
    ({"hidden_act": "relu"}, "hidden_act 'relu' is not 'gelu'"),
    ({"model_type": "roberta"}, "model_type 'roberta' is not 'bert'"),
    ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05 is not 1e-12"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key' is not 'absolute'"),
])  # fmt: skip
def test_another_kind_of_model_is_refused(change, message, tmp_path):
    import json

    transformers.BertModel(CONFIG).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(BERT_SPECIALS) + "\n")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message):
        pretrained.read(str(tmp_path))


def test_what_their_configuration_cannot_say_is_refused(tmp_path, checkpoint):
    ours = pretrained.read(checkpoint)
    causal = pretrained.Pretrained(ours.settings | {"direction": "causal"}, ours.weights, ours.tokenizer)
    with pytest.raises(ValueError, match="direction causal cannot be said"):
        pretrained.write_hugging_face(causal, tmp_path / "x")


def test_a_fine_tuned_encoder_is_written_without_its_head(tmp_path, checkpoint):
    model = Tagging(optim=OPTIM, checkpoint=checkpoint, n_labels=3)
    tuned = pretrained.Pretrained(dict(model.hparams), model.state_dict(), pretrained.read(checkpoint).tokenizer)
    folder = pretrained.write_hugging_face(tuned, tmp_path / "folder")
    peer = transformers.BertModel.from_pretrained(folder).eval()
    batch = rows((20,))
    states = model.eval().network(batch["ids"], batch["segments"])
    torch.testing.assert_close(states, peer(batch["ids"], token_type_ids=batch["segments"]).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert not pretrained.read(str(folder)).of("head")


def test_a_vocabulary_may_have_odd_line_separators(tmp_path):
    transformers.BertModel(CONFIG).save_pretrained(tmp_path)
    order = [*BERT_SPECIALS, "a", "\u2028", "\x85", "b"] + [f"w{i}" for i in range(VOCAB - 9)]
    (tmp_path / "vocab.txt").write_text("\n".join(order) + "\n", encoding="utf-8")
    assert pretrained.read(str(tmp_path)).tokenizer.get_vocab() == {piece: i for i, piece in enumerate(order)}


def test_missing_weights_are_one_message(tmp_path):
    from safetensors.torch import load_file, save_file

    transformers.BertModel(CONFIG).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(BERT_SPECIALS) + "\n")
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.output.dense.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="lack 1 of .*, among them bert.encoder.layer.1.output.dense.bias"):
        pretrained.read(str(tmp_path))


@pytest.mark.parametrize("ours", [Classification, Tagging, QuestionAnswering])
def test_fine_tuning_in_bf16(ours, checkpoint):
    batch = rows()
    label = {Classification: torch.tensor([[0], [1], [1]]), Tagging: batch["ids"] % 2, QuestionAnswering: torch.tensor([[1, 2]] * 3)}
    model = ours(optim=OPTIM, checkpoint=checkpoint, n_labels=2).eval()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.training_loss(batch | {"label": label[ours]})
        assert len(model.predicted(model.logits(batch), batch | {"label": label[ours]})) == 3
    full = model.training_loss(batch | {"label": label[ours]})
    assert float(loss.nll.detach()) == pytest.approx(float(full.nll.detach()), rel=0.05)


@pytest.mark.parametrize("name", ["nowhere", "folder"])
def test_no_checkpoint_is_one_message(name, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="no checkpoint"):
        pretrained.read(str(tmp_path / name))


# ---- masking


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(4, 30), min_size=1, max_size=6),
    rate=st.sampled_from([0.15, 0.4, 0.8]),
    masking=st.sampled_from(sorted(MASKING)),
    seed=st.integers(0, 10**6),
)
def test_exact_counts_and_never_a_special_token(lengths, rate, masking, seed):
    batch = rows(tuple(lengths)) if len(lengths) < 4 else rows(tuple(lengths[:3]))
    torch.manual_seed(seed)
    ids = batch["ids"]
    noise = torch.rand(*ids.shape, 2)
    read, chosen = mask_tokens(ids, batch["continues"], noise, rate=rate, masking=masking, unit="token", vocab_size=VOCAB)
    real = maskable(ids)
    assert not (chosen & ~real).any() and torch.equal(read[~chosen], ids[~chosen])
    masked, random = MASKING[masking]
    for row in range(len(ids)):
        wanted = max(1, round(float(rate * real[row].sum())))
        assert int(chosen[row].sum()) == min(wanted, int(real[row].sum()))
        n, became = int(chosen[row].sum()), int((read[row][chosen[row]] == MASK).sum())
        assert abs(became - masked * n) < 1 + 1e-6
    assert ((read[chosen] >= len(BERT_SPECIALS)) | (read[chosen] == MASK)).all()


def test_the_shares_are_exact_for_a_multiple_of_ten():
    ids = torch.full((50, 102), 7)
    ids[:, 0], ids[:, -1] = CLS, SEP
    read, chosen = mask_tokens(
        ids, torch.zeros_like(ids, dtype=torch.bool), torch.rand(50, 102, 2), rate=0.2, masking="paper", unit="token",
        vocab_size=10_000,
    )  # fmt: skip
    assert (chosen.sum(1) == 20).all() and ((read == MASK).sum(1) == 16).all()
    changed = (read != ids) & (read != MASK)
    assert (changed.sum(1) <= 2).all() and 1.9 < changed.sum(1).float().mean() <= 2  # one in 10,000 draws the same token
    counts = chosen.float().mean(0)[1:-1]
    assert 0.02 < counts.min() and counts.max() < 0.5, "every position may be chosen"


def test_random_tokens_are_drawn_from_all_but_the_special_ones():
    ids = torch.full((400, 52), 7)
    ids[:, 0], ids[:, -1] = CLS, SEP
    read, chosen = mask_tokens(
        ids, torch.zeros_like(ids, dtype=torch.bool), torch.rand(400, 52, 2), rate=0.5, masking="all_random", unit="token",
        vocab_size=15,
    )  # fmt: skip
    counts = read[chosen].bincount(minlength=15)
    assert (counts[:5] == 0).all() and (counts[5:] > 0.8 * 1000).all() and (counts[5:] < 1.2 * 1000).all()


def test_whole_words_are_chosen_together():
    ids = torch.arange(5, 45).repeat(30, 1)
    continues = (torch.arange(40) % 3 != 0).repeat(30, 1)
    ids = F.pad(F.pad(ids, (1, 0), value=CLS), (0, 1), value=SEP)
    continues = F.pad(continues, (1, 1), value=False)
    _, chosen = mask_tokens(ids, continues, torch.rand(30, 42, 2), rate=0.15, masking="paper", unit="word", vocab_size=60)
    for row in chosen[:, 1:40].view(30, 13, 3):
        assert (row.all(1) == row.any(1)).all()
    assert (chosen.sum(1) <= 6).all() and (chosen.sum(1) >= 4).all()
    _, one = mask_tokens(ids, continues, torch.rand(30, 42, 2), rate=0.01, masking="paper", unit="word", vocab_size=60)
    assert (one.sum(1) >= 1).all() and (one.sum(1) <= 3).all()


def test_the_masks_of_an_evaluation_depend_on_nothing_but_the_row():
    model, batch = bert(), rows()
    whole = fixed_noise(batch["index"], 20)
    alone = fixed_noise(batch["index"][1:2], 17)
    assert torch.equal(whole[1, :17], alone[0])
    one = {name: values[1:2, :17] if values.dim() == 2 else values[1:2] for name, values in batch.items()}
    together = mask_tokens(batch["ids"], batch["continues"], whole, **model.test_how)
    apart = mask_tokens(one["ids"], one["continues"], alone, **model.test_how)
    assert torch.equal(together.chosen[1, :17], apart.chosen[0]) and torch.equal(together.ids[1, :17], apart.ids[0])


# ---- the network


def test_padding_and_batch_mates_move_nothing():
    model, batch = bert(), rows()
    together = model.network(batch["ids"], batch["segments"])
    for i, length in enumerate(LENGTHS):
        alone = model.network(batch["ids"][i : i + 1, :length], batch["segments"][i : i + 1, :length])
        torch.testing.assert_close(together[i, :length], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
def test_a_causal_model_never_sees_the_future_and_a_bidirectional_one_does(position):
    batch = rows((20, 20))
    other = batch["ids"].clone()
    other[:, 10:19] = (other[:, 10:19] + 7) % 30 + 5
    for direction, moves in (("causal", False), ("bidirectional", True)):
        model = bert(objective="mlm", direction=direction, position=position)
        change = model.network(other, batch["segments"]) - model.network(batch["ids"], batch["segments"])
        assert (change[:, :10].abs().max() > 1e-4) == moves, direction


def test_a_causal_model_predicts_each_real_token_from_those_before_it():
    model, batch = bert(objective="mlm", direction="causal"), rows()
    inputs, chosen, labels = model.predicts(batch, torch.rand(3, 20, 2), model.how)
    assert torch.equal(inputs, batch["ids"]) and chosen.sum(1).tolist() == [length - 1 for length in LENGTHS]
    assert torch.equal(labels[0, :19], batch["ids"][0, 1:20])
    loss = model.loss(batch, torch.rand(3, 20, 2))
    logits = model.head(model.network(inputs, batch["segments"]))
    wanted = sum(F.cross_entropy(logits[i, : n - 1], batch["ids"][i, 1:n], reduction="sum") for i, n in enumerate(LENGTHS))
    torch.testing.assert_close(loss.nll, wanted.detach(), atol=1e-4, rtol=1e-5)
    summary = model.network.summary(model.network(inputs, batch["segments"]), inputs)
    states = model.network(inputs, batch["segments"])
    torch.testing.assert_close(summary[1], states[1, LENGTHS[1] - 1])


def test_without_positions_the_states_are_equivariant():
    model, batch = bert(position="none"), rows((20,))
    order = torch.randperm(20)
    states = model.network(batch["ids"], batch["segments"])
    shuffled = model.network(batch["ids"][:, order], batch["segments"][:, order])
    torch.testing.assert_close(shuffled, states[:, order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("more, message", [
    ({"objective": "mlm+nsp", "direction": "causal"}, "needs direction bidirectional"),
    ({"mask_rate": 1.0}, "mask_rate 1.0 must lie between 0 and 1"),
])  # fmt: skip
def test_what_cannot_go_together_is_refused(more, message):
    with pytest.raises(ValueError, match=message):
        bert(**more)


def test_frozen_features_do_not_learn_and_fresh_weights_are_others(checkpoint):
    frozen = Classification(optim=OPTIM, checkpoint=checkpoint, n_labels=2, features="frozen").train()
    assert not frozen.network.training and frozen.head.training
    batch = rows() | {"label": torch.tensor([[0], [1], [1]])}
    frozen.training_loss(batch).smoothed.backward()
    assert all(p.grad is None for p in frozen.network.parameters())
    assert all(p.grad is not None for p in frozen.head.parameters())
    kept = pretrained.read(checkpoint).of("network")
    fresh = Classification(optim=OPTIM, checkpoint=checkpoint, n_labels=2, weights="fresh")
    for name, weight in frozen.network.state_dict().items():
        assert torch.equal(weight, kept[name])
    assert not torch.equal(fresh.network.embedding.token.weight, kept["embedding.token.weight"])
    assert torch.equal(frozen.head.pooler.map.weight, pretrained.read(checkpoint).weights["pair.pooler.map.weight"])


def test_the_best_span_is_that_of_exhaustive_search(checkpoint):
    model = QuestionAnswering(optim=OPTIM, checkpoint=checkpoint, n_labels=2).eval()
    batch = rows()
    logits = torch.randn(3, 20, 2)
    for (score, first, last), row, ids, segments in zip(
        model.predicted(logits, batch), logits, batch["ids"], batch["segments"], strict=True
    ):
        context = [i for i in range(20) if segments[i] == 1 and ids[i] != PAD][:-1]
        spans = {(i, j): float(row[i, 0] + row[j, 1]) for i in context for j in context if i <= j}
        assert (first, last) == max(spans, key=spans.get) and score == pytest.approx(max(spans.values()), abs=1e-5)


def test_the_tokenizer_of_a_checkpoint_is_read_back(checkpoint):
    assert isinstance(pretrained.read(checkpoint).tokenizer, Tokenizer)
