"""The same weights give the states, logits and gradients of Hugging Face's BERT, and come back as they went."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.errors import RegardError
from regard.interop import bert
from regard.io.tensors import load_weights, unique_state_dict
from regard.models.batch import RaggedRows, TextBatch, collate_texts
from regard.models.bert import BertConfig, BertPretraining, layer_numbers
from regard.nn.attention import AttentionConfig

transformers = pytest.importorskip("transformers")

ENTRIES, PAD = 43, 0
SHAPES = {
    "plain": {},
    "narrow": {"num_hidden_layers": 3, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20},
    "one head, tanh": {"num_attention_heads": 1, "hidden_act": "gelu_new", "max_position_embeddings": 17},
    "three segments": {"type_vocab_size": 3, "layer_norm_eps": 1e-3, "hidden_act": "relu"},
}


def sizes(shape: str) -> dict:
    common = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24}
    return {"vocab_size": ENTRIES, "max_position_embeddings": 24, **common, **SHAPES[shape]}


def their_model(shape: str) -> torch.nn.Module:
    torch.manual_seed(0)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    made = transformers.BertForPreTraining(
        transformers.BertConfig(**sizes(shape), **dropout, initializer_range=0.3, attn_implementation="eager")
    )
    with torch.no_grad():
        for p in made.parameters():  # biases and norms too, or they would be compared at zero and one
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
        table = made.bert.embeddings.word_embeddings.weight
        table.copy_(torch.randn_like(table) * 0.3)  # none of zeros, as padding begins
    return made.double().eval()


def our_model(theirs: torch.nn.Module) -> BertPretraining:
    ours = bert.bert_config_from_hf(theirs.config.to_dict(), "there").pretraining(ENTRIES).double().eval()
    load_weights(ours, bert.PRETRAINING.from_hf(theirs.state_dict(), unique_state_dict(ours), "there"), "there")
    return ours


def batch(segments: int = 2) -> TextBatch:
    """Pairs of sentences, padded; some places are learned from."""
    g = np.random.default_rng(1)
    lengths = (9, 3, 16, 1)
    rows = [g.integers(4, ENTRIES, n) for n in lengths]
    sides = [np.sort(g.integers(0, segments, n)) for n in lengths]
    made = collate_texts(RaggedRows.of(rows), PAD, RaggedRows.of(sides))
    places = torch.tensor([0, 4, 8, 16, 18, 33, 47, 48])  # in rows of 16
    labels = torch.from_numpy(g.integers(4, ENTRIES, len(places)))
    return replace(made, label_positions=places, labels=labels, classes=torch.tensor([0, 1, 1, 0]))


def asked(b: TextBatch) -> dict[str, torch.Tensor]:
    return {"input_ids": b.ids, "attention_mask": b.real.long(), "token_type_ids": b.segments}


@pytest.mark.parametrize("shape", SHAPES)
def test_joined_layers(shape: str) -> None:
    theirs = their_model(shape)
    ours, b = our_model(theirs).body, batch(sizes(shape).get("type_vocab_size", 2))
    with torch.no_grad():
        layers = theirs.bert(**asked(b), output_hidden_states=True).hidden_states  # L + 1 times [B, T, D]
        last = layer_numbers("-3..-1", ours.config.layers)
        for join, expected in {
            "concat": torch.cat(layers[-3:], -1),
            "sum": sum(layers[-3:]),
            "mean": sum(layers[-3:]) / 3,
        }.items():
            found = ours.joined_layers(b, last, join)
            torch.testing.assert_close(found[b.real], expected[b.real], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_with_padding_and_segments(shape: str, kind: torch.dtype) -> None:
    theirs = their_model(shape).to(kind)
    ours = our_model(theirs).to(kind)
    b = batch(ours.body.config.segments)
    room = 1e-10 if kind == torch.float64 else 1e-5
    with torch.no_grad():
        expected, hidden = theirs(**asked(b)), theirs.bert(**asked(b))
        words, follows = ours.scores(b)
        torch.testing.assert_close(ours.body(b)[b.real], hidden.last_hidden_state[b.real], atol=room, rtol=room)
        torch.testing.assert_close(ours.pooler(ours.body(b)), hidden.pooler_output, atol=room, rtol=room)
        wanted = expected.prediction_logits.flatten(0, 1)[b.label_positions]
        torch.testing.assert_close(words, wanted, atol=room, rtol=room)
        torch.testing.assert_close(ours(b), words, atol=0, rtol=0)
        torch.testing.assert_close(follows, expected.seq_relationship_logits, atol=room, rtol=room)
    assert words.std() > 0.3  # far from a flat model, where everything would agree
    assert b.segments.sum() > 0


def test_without_segments_all_is_the_first_sentence() -> None:
    theirs = their_model("plain")
    ours, b = our_model(theirs), replace(batch(), segments=None)
    with torch.no_grad():
        hidden = theirs.bert(input_ids=b.ids, attention_mask=b.real.long()).last_hidden_state
        torch.testing.assert_close(ours.body(b)[b.real], hidden[b.real], atol=1e-10, rtol=1e-10)


def test_the_loss_of_pretraining_and_its_gradients() -> None:
    """Theirs is the mean of the words and the mean of the rows, added; ours is that times the number of words."""
    theirs = their_model("plain")
    ours, b = our_model(theirs), batch()
    labels = torch.full((b.ids.numel(),), -100)
    labels[b.label_positions] = b.labels
    mean = theirs(**asked(b), labels=labels.view_as(b.ids), next_sentence_label=b.classes).loss
    expected = mean * len(b.label_positions)
    found = ours(b, smoothing=0.0)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    found.backward()
    expected.backward()
    gradients = bert.PRETRAINING.from_hf(
        {name: p.grad for name, p in theirs.named_parameters()}, unique_state_dict(ours), "gradients"
    )
    for name, p in ours.named_parameters():
        torch.testing.assert_close(p.grad, gradients[name], atol=1e-9, rtol=1e-9, msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(shape: str) -> None:
    theirs = their_model(shape)
    ours = our_model(theirs)
    back = bert.PRETRAINING.to_hf(unique_state_dict(ours), "here")
    kept = {name: p for name, p in theirs.state_dict().items() if "decoder" not in name}
    assert set(back) == set(kept)
    assert all(torch.equal(back[name], kept[name]) for name in kept)
    said = bert.bert_config_to_hf(ours.body.config, ENTRIES)
    again = transformers.BertForPreTraining(transformers.BertConfig(**said)).double().eval()
    assert not again.load_state_dict(back, strict=False).unexpected_keys
    b = batch()
    with torch.no_grad():
        found, wanted = again(**asked(b)), theirs(**asked(b))
    torch.testing.assert_close(found.prediction_logits, wanted.prediction_logits, atol=1e-12, rtol=1e-12)


def test_the_body_alone_from_any_file() -> None:
    """With heads or without, with the prefix or without, under the names of norms that were used first."""
    theirs = their_model("plain")
    ours = our_model(theirs)
    own = unique_state_dict(ours.body)
    whole = dict(theirs.state_dict())
    bare = {f"{name}": p for name, p in theirs.bert.state_dict().items()}
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): p
           for n, p in bare.items()}  # fmt: skip
    assert old.keys() != bare.keys()
    among = bert.BODY.with_prefix("", "bert.").ignoring(
        bert.POOLER.with_prefix("", "bert.") + bert.MLM_HEAD + bert.NSP_HEAD
    )
    alone = bert.BODY.ignoring(bert.POOLER)
    old |= {"embeddings.position_ids": torch.arange(24)[None]}
    for tensors, keys in ((whole, among), (bare, alone), (old, alone)):
        found = keys.from_hf(tensors, own, "there")
        assert set(found) == set(own)
        assert all(torch.equal(found[name], own[name]) for name in own)


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(RegardError, match="position_embedding_type is relative_key, not absolute"):
        bert.bert_config_from_hf({"position_embedding_type": "relative_key"}, "there")
    with pytest.raises(RegardError, match=r"there: .*layers"):
        bert.bert_config_from_hf({"num_hidden_layers": "many"}, "there")
    other = BertConfig(residual="pre_norm", attention=AttentionConfig(pattern="window(4)"))
    with pytest.raises(RegardError, match=r"residual is pre_norm, attention\.pattern is window\(4\)"):
        bert.bert_config_to_hf(other, ENTRIES)
