"""What `look` gives: the model's own weights, for every family and choice, and numbers from which they follow."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard import text
from regard.decoding import Greedy
from regard.errors import RegardError
from regard.look import look, look_pair
from regard.look.model_inputs import LIMIT
from regard.look.quantize import pack_vectors, pack_weights, unpack_weights
from regard.nn.attention import Attention
from regard.text.config import Bpe, ByteBpe
from tests.look.small import TEXT, opened, translator, vectors, walked, weights
from tests.tasks import bert_toy, chat_toy, lm_toy, toys
from tests.training import toy

ONE = {"layers": 1, "size": 16, "inner": 16, "heads": 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return translator(tmp_path_factory.mktemp("look"))


def test_weights_are_those_that_decoding_had(made: Any) -> None:
    (best,) = made.nbest([TEXT], 1, Greedy(), attention=("encoder", "decoder", "cross"))[0]
    data = look(made, TEXT)
    assert data["output"] == best.text == made.translate([TEXT])[0]
    assert [place["name"] for place in data["places"]] == ["encoder", "decoder", "cross"]
    for place in data["places"]:
        steps = len(place["queries"]) if place["name"] != "encoder" else None
        own = best.attention[place["name"]][:, :, :steps].numpy()
        found = np.nan_to_num(weights(place["weights"]))[:, :, : own.shape[2], : own.shape[3]]
        assert found.shape == own.shape
        np.testing.assert_allclose(found, own, atol=2e-5)
        assert (place["layers"], place["heads"]) == own.shape[:2]


def test_words_stand_where_they_are_read_and_said(made: Any) -> None:
    data = look(made, TEXT, "W3 W1")
    encoder, decoder, cross = data["places"]
    assert encoder["queries"] == encoder["keys"] == cross["keys"] == [*TEXT.split(), "</s>"]
    assert decoder["queries"] == decoder["keys"] == ["<s>", "W3", "W1"]
    assert cross["queries"] == decoder["says"] == ["W3", "W1", "</s>"]
    assert data["output"] == "W3 W1"
    assert [place["causal"] for place in data["places"]] == [False, True, False]
    hidden = np.isnan(weights(decoder["weights"]))
    assert (hidden == np.triu(np.ones((3, 3), bool), 1)).all()
    assert not np.isnan(weights(cross["weights"])).any()
    json.dumps(data, allow_nan=False)


def test_recording_changes_no_output(made: Any) -> None:
    before, state = made.translate([TEXT, "w7 w8"]), torch.get_rng_state()
    look(made, TEXT)
    assert made.translate([TEXT, "w7 w8"]) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert not made.model.training


# --- every choice: what the page computes is what the model computed -----------------------------------------------

CHOICES: dict[str, dict[str, Any]] = {
    "dot": {"attention": {"score": "dot"}},
    "general": {"attention": {"score": "general"}},
    "additive": {"attention": {"score": "additive"}},
    "concat": {"attention": {"score": {"kind": "concat", "size": 5}}},
    "cosine": {"attention": {"score": {"kind": "cosine", "scale": 3.0}}},
    "tiled": {"layers": 2, "attention": {"score": ["scaled_dot", "additive"]}},
    "hard": {"attention": {"normalise": "hard"}},
    "sparsemax": {"attention": {"normalise": "sparsemax"}},
    "entmax": {"attention": {"normalise": "entmax"}},
    "sizes": {"attention": {"d_k": 6, "d_v": 10}},
    "shared": {"attention": {"projection": "shared"}},
    "window": {"attention": {"encoder": {"pattern": "window(2)"}, "decoder": {"pattern": "window(2)"}}},
    "local_p": {"attention": {"cross": {"pattern": "local_p(2)"}}},
    "none": {"position": "none"},
    "learned": {"position": {"kind": "learned", "length": 300}},
    "joined": {"position": {"kind": "sinusoidal", "join": "concat"}},
    "rotary": {"position": "rotary"},
    "relative": {"position": {"kind": "relative", "distance": 2}},
    "alibi": {"position": "alibi"},
    "t5": {"position": "t5"},
    "strided_conv": {"attention": {"encoder": {"compress": {"kind": "strided_conv", "factor": 2}}}},
    "linformer": {"attention": {"encoder": {"compress": {"kind": "linformer", "length": 300, "size": 3}}}},
    "bahdanau": {"kind": "rnn", "preset": "bahdanau", "size": 12},
    "luong": {"kind": "rnn", "preset": "luong", "size": 12},
    "luong local": {"kind": "rnn", "preset": "luong", "size": 12, "attention": {"pattern": "local_p(2)"}},
    "conv": {"kind": "conv", "layers": 2, "size": 12},
}


@pytest.mark.parametrize("name", CHOICES)
def test_sums_from_the_page_are_the_models_own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = CHOICES[name]
    made = translator(tmp_path, choice if "kind" in choice else ONE | choice)
    outputs: dict[int, list[np.ndarray]] = {}
    attend = Attention.attend

    def watched(self: Attention, *given: Any, **more: Any) -> Any:
        out = attend(self, *given, **more)
        outputs.setdefault(id(self), []).append(out[0].numpy())
        return out

    made.translate([TEXT])  # what decoding computes does not count below
    monkeypatch.setattr(Attention, "attend", watched)
    data = look(made, TEXT, "W5 W4 W3")
    kept = [np.concatenate(each, 1) for each in outputs.values()]  # [H, Q, d_v], in the order in which they were asked
    order = [(place["name"], n) for place in data["places"] for n in range(place["layers"])]
    order.sort(key=lambda at: (at[0] != "encoder", at[1], at[0] == "cross"))
    assert len(kept) == len(order) > 0
    for (place, layer), own in zip(order, kept, strict=True):
        found, sums = walked(data, place, layer)
        recorded = np.nan_to_num(weights(next(p for p in data["places"] if p["name"] == place)["weights"])[layer])
        assert recorded.shape == found.shape
        np.testing.assert_allclose(found, recorded, atol=5e-4)
        np.testing.assert_allclose(sums, own, atol=5e-3)
        assert (found.sum(-1) == pytest.approx(1.0, abs=1e-6)) == ("gain" not in data["walk"][place][layer])


@pytest.mark.parametrize("name", ["none", "learned", "joined", "rotary"])
def test_what_a_word_enters_with(name: str, tmp_path: Path) -> None:
    made = translator(tmp_path, ONE | CHOICES[name])
    parts = look(made, TEXT)["walk"]["sides"]["source"]["parts"]
    expected = {"learned": ["word", "position"], "joined": ["word", "joined"]}
    assert list(parts) == expected.get(name, ["word"])
    entered: list[torch.Tensor] = []
    hook = made.model.encoder[0].register_forward_pre_hook(lambda module, given: entered.append(given[0]))
    look(made, TEXT)
    hook.remove()
    sums = np.array(parts["joined"]) if name == "joined" else np.sum([np.array(each) for each in parts.values()], 0)
    np.testing.assert_allclose(sums, entered[0][0, :, :8], atol=2e-5)


# --- rollout -------------------------------------------------------------------------------------------------------


def test_rollout_is_what_passes_through_the_layers(made: Any) -> None:
    data = look(made, TEXT, "W1 W2")
    mean = {place["name"]: np.nan_to_num(weights(place["weights"])).mean(1) for place in data["places"]}
    rolled = {name: weights(found) for name, found in data["rollout"].items()}
    expected = np.eye(6)
    for layer, own in enumerate(mean["encoder"]):
        expected = (0.5 * own + 0.5 * np.eye(6)) @ expected
        np.testing.assert_allclose(rolled["encoder"][layer], expected, atol=1e-4)
    target, source = np.eye(3), np.zeros((3, 6))
    for own, cross in zip(mean["decoder"], mean["cross"], strict=True):
        mixed = 0.5 * own + 0.5 * np.eye(3)
        target, source = mixed @ target, mixed @ source
        target, source = target / 2, source / 2 + cross @ expected / 2
    np.testing.assert_allclose(rolled["decoder"][-1], target, atol=1e-4)
    np.testing.assert_allclose(rolled["cross"][-1], source, atol=1e-4)
    assert (rolled["decoder"][-1].sum(-1) + rolled["cross"][-1].sum(-1)) == pytest.approx(1.0, abs=1e-3)


# --- other families ------------------------------------------------------------------------------------------------


def test_a_language_model(tmp_path: Path) -> None:
    lm_toy.write_text(tmp_path, 20)
    made = opened(tmp_path, lm_toy.recipe(tmp_path))
    data = look(made, "the cat")
    (place,) = data["places"]
    assert place["name"] == "decoder"
    assert place["queries"] == ["<s>", *"the▁cat"]
    assert place["says"][:-1] == [*"the▁cat"]
    assert place["says"][-1] == data["output"]
    assert look(made, "the", " cat")["places"] == data["places"]
    assert list(data["rollout"]) == ["decoder"]
    assert weights(data["rollout"]["decoder"]).sum(-1) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(RegardError, match="more than the 16 that this model reads at once"):
        look(made, "the cat sat on a mat")


def test_a_decoder_alone(tmp_path: Path) -> None:
    """Source and target are one sequence; a list of compressors has keys of several lengths, which no page shows."""
    sizes = {"kind": "decoder_only", "layers": 2, "size": 16, "inner": 16, "heads": 2}
    made = translator(tmp_path, sizes | {"attention": {"pattern": ["blocks(4)", "full"]}})
    data = look(made, TEXT, "W1 W2")
    (place,) = data["places"]
    assert place["queries"] == place["keys"] == [*TEXT.split(), "</s>", "<s>", "W1", "W2"]
    assert place["says"][-3:-1] == ["W1", "W2"]
    assert np.isnan(weights(place["weights"])[0, :, 5, 2:4]).all()  # another block
    assert look(made, TEXT)["output"] == made.translate([TEXT])[0]
    with pytest.raises(RegardError, match="leave out the referent"):
        look(made, TEXT, referent="w1")
    compressed = translator(tmp_path, sizes | {"attention": {"compress": ["none", "strided_conv"]}})
    with pytest.raises(RegardError, match="cannot be shown side by side"):
        look(compressed, TEXT)


@pytest.mark.parametrize("kind", ["transformer", "lm"])
def test_a_model_that_talks(kind: str, tmp_path: Path) -> None:
    chat_toy.write(tmp_path, 20)
    made = opened(tmp_path, chat_toy.recipe(tmp_path, kind))
    history = "do you like tea\nyes I like tea"
    data = look(made, history)
    assert data["output"] == made.replies([history.split("\n")])[0].text
    data = look(made, history, "no tea later")
    turns = ["do", "you", "like", "tea", "</s>", "yes", "I", "like", "tea", "</s>"]
    place = data["places"][-1]
    if kind == "lm":
        assert place["queries"] == place["keys"] == ["<s>", *turns, "no", "tea", "later"]
    else:
        assert place["keys"] == turns
        assert place["queries"] == ["no", "tea", "later", "</s>"]
    found, _ = walked(data, place["name"], 0)
    np.testing.assert_allclose(found, np.nan_to_num(weights(place["weights"])[0]), atol=5e-4)


def test_recurrent_language_models_have_no_attention(tmp_path: Path) -> None:
    lm_toy.write_text(tmp_path, 20)
    keys = lm_toy.recipe(tmp_path)
    made = opened(tmp_path, keys | {"model": {"kind": "lstm_lm", "size": 8}})
    with pytest.raises(RegardError, match="kind lstm_lm has no attention to look at"):
        look(made, "the cat")


def test_bert_with_a_gap(tmp_path: Path) -> None:
    bert_toy.write_text(tmp_path, 20)
    made = opened(tmp_path, bert_toy.recipe(tmp_path))
    data = look(made, "Cat [MASK] mat")
    (place,) = data["places"]
    assert place["queries"][0] == "[CLS]"
    assert "[MASK]" in place["queries"]
    assert data["output"] == made.fill(["Cat [MASK] mat"], 1)[0][0][0].word
    assert list(data["walk"]["sides"]["text"]["parts"]) == ["word", "segment", "position", "norm"]
    with pytest.raises(RegardError, match="leave out the target"):
        look(made, "Cat", "mat")


ROWS = {
    "classify": ("text\tlabel\ngood thing\tyes\nbad thing\tno\n", "good thing", ["<s>", "good", "thing", "</s>"]),
    "tag": ("good O\nthing B-X\n\nbad O\n", "good thing", ["<s>", "good", "thing", "</s>"]),
    "answer": (
        json.dumps({"question": "who", "context": "good thing", "answers": {"text": ["good"], "answer_start": [0]}}),
        "who\tgood thing",
        ["<s>", "who", "</s>", "good", "thing", "</s>"],
    ),
    "choose": (
        json.dumps({"context": "good", "question": "who", "options": ["thing", "bad"], "answer": 0}),
        "good\twho\tthing\tbad",
        None,
    ),
}


@pytest.mark.parametrize("kind", ROWS)
def test_fine_tuned_tasks(kind: str, tmp_path: Path) -> None:
    rows, text, words = ROWS[kind]
    name = {"classify": "rows.tsv", "tag": "rows.conll"}.get(kind, "rows.jsonl")
    (tmp_path / name).write_text(rows + "\n", encoding="utf-8")
    task = {"kind": kind} | ({"length": 32, "overlap": 4, "question": 8} if kind == "answer" else {})
    task |= {"overlap": 4} if kind == "tag" else {}
    made = opened(tmp_path, toys.recipe(tmp_path, task, (name, name)))
    data = look(made, text)
    (place,) = data["places"]
    if kind == "choose":
        best = made.choose([("good", "who", ["thing", "bad"])])[0]
        words = ["<s>", "good", "</s>", "who", best.text, "</s>"]
        assert data["output"] == best.text
    assert place["queries"] == words
    parts = data["walk"]["sides"]["text"]["parts"]
    first, last = np.array(parts["segment"])[[0, -1]]
    assert np.allclose(first, last) == (kind in ("classify", "tag"))
    found, _ = walked(data, "encoder", 0)
    np.testing.assert_allclose(found, weights(place["weights"])[0], atol=5e-4)


# --- what is refused -----------------------------------------------------------------------------------------------


def test_what_cannot_be_shown_is_said(made: Any, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="no text to look at"):
        look(made, " \n")
    with pytest.raises(RegardError, match=f"has 301 tokens, more than the {LIMIT} that can be shown"):
        look(made, "w1 " * 301)
    with pytest.raises(RegardError, match="the target has 250 tokens"):
        look(made, TEXT, "W1 " * 250)
    with pytest.raises(RegardError, match="kind bytenet has no attention to look at"):
        look(translator(tmp_path, {"kind": "bytenet", "size": 16}), TEXT)


def test_a_page_that_would_be_too_large_has_no_walk(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.look.internals.BUDGET", 100)
    data = look(made, TEXT)
    assert data["walk"] == {"left_out": "size"}
    assert data["places"]


# --- packing -------------------------------------------------------------------------------------------------------


def test_packed_numbers_come_back() -> None:
    x = torch.randn(3, 5, 7, dtype=torch.float64) * torch.tensor([1e-3, 1.0, 50.0])[:, None, None]
    x[2, 0, 0] = 0.0
    largest = x.abs().amax((1, 2), keepdim=True).numpy()
    assert (np.abs(vectors(pack_vectors(x)) - x.numpy()) <= largest / 65000).all()
    assert vectors(pack_vectors(torch.zeros(1, 2))).tolist() == [[0.0, 0.0]]
    w = torch.tensor([[0.0, 1.0, 0.12341]])
    assert unpack_weights(pack_weights(w)) == [[0.0, 1.0, 0.1234]]
    assert unpack_weights(pack_weights(w, torch.tensor([[True, False, False]])))[0][0] is None


def test_pieces_are_shown_as_people_read_them(made: Any) -> None:
    lines = ["你好 world low lower"] * 9
    t = text.train_tokenizer(ByteBpe(size=270), lines, "en")
    assert t.shown([*t.encode("low 你 我"), t.eos]) == ["lo", "w", "▁", "你", "▁", "e6", "88", "91", "</s>"]
    t = text.train_tokenizer(Bpe(size=22), lines, "en")
    assert t.shown([t.bos, *t.encode("low lower")]) == ["<s>", "low", "low@@", "er@@", "▁"]
    t = made.vocabulary.source
    assert t.shown(t.encode("w1 strange")) == ["w1", "<unk>"]


# --- what follows the heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        ONE,
        ONE | {"residual": "pre_norm", "norm": "rms", "activation": "swiglu"},
        ONE | {"residual": "none", "activation": "gelu"},
        {**ONE, "layers": 2, "attention": {"d_v": 5}},
    ],
    ids=lambda model: " ".join(map(str, model.values())),
)
def test_the_walk_goes_on_to_the_next_layer(model: dict[str, Any], tmp_path: Path) -> None:
    """From the heads' sums to the layer's output, each number from those before it."""
    made = translator(tmp_path, model)
    data = look(made, TEXT, "W5 W4 W3")
    for place in data["places"]:
        for n in range(place["layers"]):
            after = data["walk"][place["name"]][n]["after"]
            _, sums = walked(data, place["name"], n)
            y = np.einsum("hqv,hdv->qd", sums, vectors(after["output"]["weight"])) + after["output"]["bias"]
            for part in after["parts"]:
                x, own, out = vectors(part["vectors"])
                np.testing.assert_allclose(own, y, atol=5e-3) if part is after["parts"][0] else None
                norm, residual = part["norm"], part["residual"]
                mean, deviation = np.array(norm["mean"])[:, None], np.array(norm["deviation"])[:, None]
                normal = lambda s: (s - mean) / deviation * norm["gain"] + norm.get("bias", 0)  # noqa: B023, E731
                wanted = {"pre_norm": x + own, "none": normal(own), "post_norm": normal(x + own)}[residual]
                np.testing.assert_allclose(out, wanted, atol=2e-3)
            decoder_self = place["name"] == "decoder"
            assert [bool(part.get("feed_forward")) for part in after["parts"]] == [False] + [True] * (not decoder_self)
            if n + 1 < place["layers"] and not decoder_self:
                name = "encoder" if place["name"] == "encoder" else "decoder"
                following = vectors(data["walk"][name][n + 1]["after"]["parts"][0]["vectors"])[0]
                np.testing.assert_allclose(vectors(after["parts"][-1]["vectors"])[2], following, atol=1e-3)


def test_scores_of_words_are_the_models_own(made: Any) -> None:
    """The probability of its own translation, from the likeliest words and the bins of all others."""
    data = look(made, TEXT)
    scores, says = data["walk"]["scores"], data["places"][1]["says"]
    logits = vectors(scores["logits"])[0]
    total = np.exp(logits).sum(-1) + (np.exp(vectors(scores["rest"])[0]) * scores["counts"]).sum(-1)
    own = [[scores["words"][each] for each in ids].index(word) for ids, word in zip(scores["ids"], says, strict=True)]
    likelihood = np.log(np.exp(logits[np.arange(len(says)), own]) / total).sum()
    (best,) = made.nbest([TEXT], 1, Greedy())[0]
    assert likelihood == pytest.approx(best.log_probability, abs=0.01)
    assert sum(scores["counts"]) + 40 == scores["vocabulary"] == len(made.model.output.weight)


def test_sources_name_the_lines_that_compute_each_step(made: Any) -> None:
    data = look(made, TEXT, "W5")
    sources = data["walk"]["cross"][-1]["sources"]
    root = Path(__file__).parents[2] / "src"
    for step, wanted in (
        ("score", "def forward"),
        ("normalise", "def forward"),
        ("attention", "def attention"),
        ("projection", "def project_qkv"),
        ("heads", "def _join"),
        ("residual", "def forward"),
        ("norm", "def forward"),
        ("feed_forward", "def forward"),
        ("scores", "def forward"),
        ("embedding", "def forward"),
    ):
        path, line = sources[step].split(":")
        assert wanted in (root / path).read_text(encoding="utf-8").splitlines()[int(line) - 1], step


# --- dependency trees ----------------------------------------------------------------------------------------------


def structural(folder: Path, terms: str) -> Any:
    """A model with structural positions, whose corpus has a chain for every sentence."""
    toy.write_corpus(folder, train=40, valid=5)
    keys = toy.recipe(folder)
    for split, size in (("train", 40), ("valid", 5)):
        lines = (folder / f"{split}.en").read_text(encoding="utf-8").splitlines()
        chains = (
            "".join(f"{n}\t{word}\t_\t_\t_\t_\t{n - 1}\t_\t_\t_\n" for n, word in enumerate(line.split(), 1))
            for line in lines
        )
        (folder / f"{split}.conllu").write_text("\n".join(chains), encoding="utf-8")
        assert len(lines) == size
        sides = {side: str(folder / f"{split}.{name}") for side, name in (("source", "en"), ("target", "de"))}
        keys["data"][split] = [sides | {"heads": str(folder / f"{split}.conllu")}]
    position = {"encoder": {"kind": "structural", "terms": terms}, "decoder": "sinusoidal"}
    keys["model"] = ONE | {"position": position}
    return opened(folder, keys)


@pytest.mark.parametrize("terms", ["absolute", "relative", "both"])
def test_dependency_trees(tmp_path: Path, terms: str) -> None:
    made = structural(tmp_path, terms)
    chain, flat = [0, 1, 2, 3, 4], [0, 1, 1, 1, 1]
    data = look(made, TEXT, trees=[chain])
    assert data["output"] == made.translate([TEXT], trees=[chain])[0]
    own, _ = walked(data, "encoder", 0)
    np.testing.assert_allclose(own, np.nan_to_num(weights(data["places"][0]["weights"])[0]), atol=5e-4)
    other = look(made, TEXT, data["output"], trees=[flat])
    assert other["places"][0]["weights"] != data["places"][0]["weights"]
    assert (other["walk"]["sides"]["source"] != data["walk"]["sides"]["source"]) == (terms != "relative")
    off = look(made, TEXT, "W1", ["encoder.1.1"], trees=[chain], referent="w1/W1=w2")
    assert off["route"]["steps"]
    pair = look_pair(made, TEXT, TEXT, "W1", trees=[chain, flat])
    assert pair["moved"]["heads"][0]["moved"] > 0
    with pytest.raises(RegardError, match=r"structural positions need a dependency tree for every sentence.*--trees"):
        look(made, TEXT)
    with pytest.raises(RegardError, match="5 words in the text, but heads for 2"):
        look(made, TEXT, trees=[[0, 1]])
    with pytest.raises(RegardError, match="one text, but heads for 2"):
        look(made, TEXT, trees=[chain, flat])
    with pytest.raises(RegardError, match="two texts, but heads for 1"):
        look_pair(made, TEXT, TEXT, trees=[chain])
