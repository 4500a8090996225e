"""Words get the tags they should, whatever pieces they are cut into and however long the sentence is."""

import itertools
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import regard
from regard import recipe as recipes
from regard.data.config import Corpus
from regard.data.tagged import Scheme, TaggedSentence, tagged_sentences
from regard.errors import RegardError
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.windows import word_windows
from regard.interop.families import export_run
from regard.models.batch import TextBatch
from regard.models.bert import BertConfig
from regard.models.heads import IGNORE_INDEX, FeatureTagger, LayerFeatures
from regard.predict.tagging import Tags
from regard.tasks.tag import TagConfig
from regard.text import from_bert
from tests.parity.test_heads import write_vocabulary
from tests.tasks import toys

NAMES, PLACES, OTHERS = ("ann", "bob", "eve"), ("rome", "oslo"), [f"w{i}" for i in range(10)]


def write_sentences(folder: Path) -> Path:
    """A name may have two words, of which the second is told by the first alone."""
    draw = random.Random(1)
    for name, count in (("train.conll", 150), ("valid.conll", 30)):
        rows: list[str] = ["-DOCSTART- O", ""]
        for _ in range(count):
            for _ in range(draw.randint(1, 4)):
                rows += [f"{draw.choice(OTHERS)} O" for _ in range(draw.randint(0, 2))]
                rows += [f"{draw.choice(PLACES)} B-LOC"] if draw.random() < 0.5 else [
                    f"{draw.choice(NAMES)} B-PER", f"{draw.choice(OTHERS[:5])} I-PER"]  # fmt: skip
            rows.append("")
        (folder / name).write_text("\n".join(rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_sentences(tmp_path_factory.mktemp("tag"))
    model = toys.MODEL | {"layers": 2, "position": "rotary"}
    made = toys.recipe(
        folder, {"kind": "tag", "length": 16, "overlap": 6}, ("train.conll", "valid.conll"), model=model, steps=120
    )
    outcome = toys.trained(made, folder / "run")
    assert toys.value(outcome, "f1") > 95
    assert outcome.results["words_per_second"] > 0
    return folder / "run"


def test_it_learns_and_is_used(run: Path) -> None:
    assert json.loads((run / "labels.json").read_text())["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    model = regard.load(run, "cpu")
    first, empty, third = model.tag(["w1 ann w2 rome", "", ["oslo", "w3"]])
    assert first.tags == ["O", "B-PER", "I-PER", "B-LOC"]
    assert [tuple(e) for e in first.entities] == [("PER", "ann w2", 1, 3), ("LOC", "rome", 3, 4)]
    assert all(share > 0.5 for share in first.probabilities)
    assert (empty.tags, third.tags) == ([], ["B-LOC", "O"])
    with pytest.raises(RegardError, match=r"tag has no option befor; did you mean before\?"):
        model.tag(["w1"], befor=3)
    for wrong in ([["w1", 3]], [None]):
        with pytest.raises(RegardError, match=r"number 1 is .*, which is not text"):
            model.tag(wrong)
    with pytest.raises(RegardError, match=r"tag takes a list of \w+, not None"):
        model.tag(None)
    with pytest.raises(RegardError, match="tag takes a list of sentences, not one string"):
        model.tag("w1 ann")


def test_the_command(run: Path) -> None:
    assert toys.command("tag", run, stdin="w1 rome\n\nann w2\n") == "O B-LOC\n\nB-PER I-PER\n"
    found = json.loads(toys.command("tag", run, "--json", stdin="w1  rome\n"))
    assert (found["line"], found["words"], found["tags"]) == (1, ["w1", "rome"], ["O", "B-LOC"])
    assert found["entities"] == [{"type": "LOC", "text": "rome", "begin": 1, "end": 2}]


def test_a_long_sentence_gets_the_tags_of_its_parts(run: Path) -> None:
    model = regard.load(run, "cpu")
    words = ["w1", "ann", "w2", "rome", "w7"] * 30  # 150 words in rows of 16 pieces
    said: list[str] = []
    found = model.tag([words], said.append)[0]
    wanted = ["O", "B-PER", "I-PER", "B-LOC", "O"] * 30
    assert np.mean([a == b for a, b in zip(found.tags, wanted, strict=True)]) > 0.97
    assert said == [
        "sentences longer than task.length=16 pieces, read in segments: 1 (sentence 1)",
        "long texts lost 0 of 150 tokens",
    ]
    model.tag([words], said.append, before=4)
    assert said[2].endswith("(sentence 5)")


# --- windows and pieces ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 6), min_size=1, max_size=60), st.integers(6, 20), st.integers(0, 5))
def test_windows_hold_every_word_and_fit(sizes: list[int], room: int, overlap: int) -> None:
    found = list(word_windows(sizes, room, overlap))
    assert {n for begin, end in found for n in range(begin, end)} == set(range(len(sizes)))
    assert all(sum(sizes[begin:end]) <= room for begin, end in found)
    for (a, b), (c, d) in itertools.pairwise(found):
        assert a < c <= b < d
        assert sum(sizes[c:b]) <= overlap


def codec(folder: Path, **keys: object) -> ExampleCodec[Any, Any, Any]:
    write_vocabulary(folder)
    return ExampleCodec(TagConfig(**keys), from_bert(folder / "vocab.txt"), ["O", "B-X", "I-X"])  # type: ignore[arg-type]


def test_the_first_piece_carries_the_tag(tmp_path: Path) -> None:
    """As transformers' own tokenizer says which piece belongs to which word."""
    transformers = pytest.importorskip("transformers")
    made = codec(tmp_path)
    words, tags = ["Cats", "\u200b", "dog", "ab,dogs", "?!"], ["B-X", "I-X", "O", "B-X", "O"]
    (feature,) = made.features([TaggedSentence("here", words, tags)])
    batch = made.collate([feature])
    theirs = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    kept = [word if word != "\u200b" else "[UNK]" for word in words]  # a word that is nothing must still have a place
    wanted = theirs([kept], is_split_into_words=True)
    assert feature.rows[0].ids == wanted["input_ids"][0]
    numbers = wanted.word_ids(0)
    first = [n is not None and n != before for n, before in zip(numbers, [None, *numbers], strict=False)]
    learned = batch.classes[0, : len(numbers)]
    assert [c != IGNORE_INDEX for c in learned.tolist()] == first
    assert [made.labels[c] for c in learned.tolist() if c != IGNORE_INDEX] == tags
    assert (batch.classes[0, len(numbers) :] == IGNORE_INDEX).all()
    assert made.settings.count_targets(feature) == 5


def test_windows_are_merged_by_what_a_word_sees(tmp_path: Path) -> None:
    made = codec(tmp_path, length=10, overlap=4)
    example = TaggedSentence("here", ["a"] * 12, [])
    features = made.features([example])
    assert [(u.window.begin, len(u.window.places)) for u in features] == [(0, 8), (4, 8)]
    scores = [np.zeros((16, 3)), np.zeros((16, 3))]
    scores[0][:, 1], scores[1][:, 2] = 5, 5  # the first window says B-X, the second I-X
    said = made.settings.merge(example, features, scores, made)
    assert said.tags == ["B-X"] * 6 + ["I-X"] * 6  # words 4 to 7 are in both; each side has the nearer ones


def test_what_tags_mean() -> None:
    def entities(*tags: str) -> list[tuple]:
        words = [f"w{n}" for n in range(len(tags))]
        return [(e.type, e.begin, e.end) for e in Tags(words, list(tags), []).entities]

    from seqeval.metrics.sequence_labeling import get_entities

    draw = random.Random(0)
    for _ in range(200):
        tags = [draw.choice(["O", "B-X", "I-X", "B-Y", "I-Y"]) for _ in range(draw.randint(1, 8))]
        assert entities(*tags) == [(kind, begin, end + 1) for kind, begin, end in get_entities(tags)]


# --- files -----------------------------------------------------------------------------------------------------------


def read(folder: Path, rows: Sequence[str], scheme: Scheme = "bio", **keys: object) -> list[TaggedSentence]:
    (folder / "a.txt").write_text("\n".join(rows) + "\n")
    return list(tagged_sentences(Corpus(path=str(folder / "a.txt"), **keys), scheme))  # type: ignore[arg-type]


def test_columns(tmp_path: Path) -> None:
    rows = ["-DOCSTART- -X- O O", "", "EU NNP I-NP B-ORG", "x Y O O", "", "", "z Z O O"]
    first, second = read(tmp_path, rows)
    assert (first.words, first.tags, first.location(1)) == (["EU", "x"], ["B-ORG", "O"], f"{tmp_path}/a.txt, line 4")
    assert (second.words, second.location(0)) == (["z"], f"{tmp_path}/a.txt, line 7")
    assert read(tmp_path, rows, "plain", columns=[1, 2])[0].tags == ["NNP", "Y"]


def test_iob1_becomes_bio(tmp_path: Path) -> None:
    tags = ["I-A", "I-A", "B-A", "O", "I-B", "I-A", "B-A", "I-A"]
    found = read(tmp_path, [f"w {tag}" for tag in tags], "iob1")[0].tags
    assert found == ["B-A", "I-A", "B-A", "O", "B-B", "B-A", "B-A", "I-A"]


@pytest.mark.parametrize(
    "rows, said",
    [
        (["a O", "", "b O", "c I-X"], r"a\.txt, line 4: I-X does not go on with anything, since O comes before it"),
        (["a I-X"], r"a\.txt, line 1: I-X does not go on .* nothing comes before it; BIO begins an entity with B-X"),
        (["a B-X", "b I-Y"], r"a\.txt, line 2: I-Y does not go on with anything, since B-X comes before it"),
        (["a O", "b NN"], r"a\.txt, line 2: the tag 'NN' is not O, B-TYPE or I-TYPE"),
        (["a O", "b"], r"a\.txt, line 2: 1 columns; a word and its tag are needed"),
    ],
)
def test_bad_sequences_are_told_with_their_line(tmp_path: Path, rows: list[str], said: str) -> None:
    with pytest.raises(RegardError, match=said):
        read(tmp_path, rows)


def test_a_tag_that_training_never_saw(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("a B-X\nb O\n")
    (tmp_path / "valid.conll").write_text("a B-X\nb I-X\n\nc O\nd B-Y\n")
    made = recipes.load_recipe(toys.recipe(tmp_path, {"kind": "tag", "overlap": 0}, ("train.conll", "valid.conll")))
    with pytest.raises(RegardError, match=r"valid\.conll, line 5: the label 'B-Y' was never seen in training"):
        made.task.prepare(made, None, lambda *_: None)


def test_lines_of_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"words": ["a", "b"], "tags": ["O"]}\n')
    with pytest.raises(RegardError, match=r"a\.jsonl, line 1: 2 words and 1 tags"):
        list(tagged_sentences(Corpus(path=str(tmp_path / "a.jsonl")), "bio"))
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", "b"], "tags": ["O", "I-X"]}\n{"tokens": [], "tags": []}\n')
    with pytest.raises(RegardError, match=r"a\.jsonl, line 1, word 2: I-X"):
        list(tagged_sentences(Corpus(path=str(tmp_path / "a.jsonl")), "bio"))
    notes = Notes()
    examples = list(tagged_sentences(Corpus(path=str(tmp_path / "a.jsonl")), "plain"))
    write_vocabulary(tmp_path)
    made = ExampleCodec(TagConfig(scheme="plain"), from_bert(tmp_path / "vocab.txt"), ["I-X", "O"])
    assert len(made.features(examples, notes)) == 1
    assert notes.messages() == [f"sentences without words, left out: 1 ({tmp_path}/a.jsonl, line 2)"]


def test_plain_tags_have_no_entities(tmp_path: Path) -> None:
    made = toys.recipe(tmp_path, {"kind": "tag", "scheme": "plain", "overlap": 0}, ("a", "b"))
    with pytest.raises(RegardError, match=r"training\.goal: f1 counts entities"):
        recipes.load_recipe(made)
    assert recipes.load_recipe(made, ["training.goal=accuracy"]).training.goal == "accuracy"


def test_features_of_a_language_model_go_with_the_tagger(tmp_path: Path) -> None:
    """ELMo: the biLM's weights come from another run, stay as they are there, and that run is needed no more."""
    write_sentences(tmp_path)
    words = [" ".join(one.words) for one in tagged_sentences(Corpus(path=str(tmp_path / "train.conll")), "bio")]
    (tmp_path / "text.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    features = {"kind": "bilstm_lm", "layers": 2, "size": 12}
    task = {"kind": "lm", "documents": "line", "boundaries": "marked", "length": 8}
    files = ("text.txt", "text.txt")
    made = toys.recipe(tmp_path, task, files, steps=10, model=features, training={"tokens_per_batch": 64})
    toys.trained(made, tmp_path / "bilm")
    origin = load_file(tmp_path / "bilm" / "model.safetensors")

    def tagger(features: dict[str, object] | None, steps: int = 100) -> dict[str, object]:
        model = {"kind": "elmo", "embedding": 8, "size": 16, "dropout": 0.1, "features": features}
        keys = {"init": str(tmp_path / "bilm"), "schedule": {"kind": "linear", "peak": 2e-2, "warmup": 5}}
        task = {"kind": "tag", "length": 16, "overlap": 6}
        return toys.recipe(tmp_path, task, ("train.conll", "valid.conll"), steps, model=model, training=keys)

    with pytest.raises(RegardError, match=r"another model: model\.features\.layers is 2 there and 1 here"):
        toys.trained(tagger(features | {"layers": 1}), tmp_path / "other")
    toys.trained(tagger(None, steps=2), tmp_path / "words")
    assert toys.value(toys.trained(tagger(features), tmp_path / "run"), "f1") > 90
    shutil.rmtree(tmp_path / "bilm")
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(kept[name.replace("body.", "body.features.", 1)], value) for name, value in origin.items())
    assert kept["body.mix.weights"].abs().sum() > 0
    alone = load_file(tmp_path / "words" / "model.safetensors")
    assert not any("features" in name for name in alone)
    assert len(alone["body.embedding.weight"]) == len(origin["body.embedding.weight"])  # the same vocabulary
    assert regard.load(tmp_path / "run", "cpu").tag(["w1 ann w2 rome"])[0].tags == ["O", "B-PER", "I-PER", "B-LOC"]


# --- features of a frozen BERT --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lstm", [0, 1])
def test_layers_of_a_frozen_body_are_features(run: Path, lstm: int) -> None:
    """Another tagger on the layers of the first: the body stays, what reads it is learned."""
    folder = run.parent
    task = {
        "kind": "tag",
        "length": 16,
        "overlap": 6,
        "frozen_features": {"layers": "-2..-1", "lstm": lstm, "size": 32},
    }
    made = toys.recipe(folder, task, ("train.conll", "valid.conll"), steps=60)
    made["model"] = toys.MODEL | {"layers": 2, "position": "rotary"}
    made["training"] |= {"init": str(run), "schedule": {"kind": "linear", "peak": 1e-2, "warmup": 5}}
    outcome = toys.trained(made, folder / f"features{lstm}")
    assert toys.value(outcome, "f1") > 95
    before, after = (load_file(r / "model.safetensors") for r in (run, folder / f"features{lstm}"))
    assert all(torch.equal(after[name], before[name]) for name in before if name.startswith("body."))
    assert any(name.startswith("lstm.") for name in after) == bool(lstm)
    shutil.move(run, folder / "elsewhere")  # what is trained needs the other run no more
    try:
        model = regard.load(folder / f"features{lstm}", "cpu")
    finally:
        shutil.move(folder / "elsewhere", run)
    long, short = "w1 ann w2 rome w3 w4 eve w2", "oslo w3"
    together, alone = model.tag([long, short]), model.tag([short])
    assert together[0].tags[:4] == ["O", "B-PER", "I-PER", "B-LOC"]
    assert together[1].probabilities == pytest.approx(alone[0].probabilities, abs=1e-6)  # padding changes nothing
    with pytest.raises(RegardError, match=r"Hugging Face has no tagger that reads joined layers"):
        export_run("hf", folder / f"features{lstm}", folder / "hf", "float32")
    export_run("safetensors", folder / f"features{lstm}", folder / f"copy{lstm}", "float32")
    assert regard.load(folder / f"copy{lstm}", "cpu").tag([long]) == model.tag([long])


def test_the_feature_tagger_by_hand() -> None:
    torch.manual_seed(0)
    body = BertConfig(layers=3, size=8, inner=16, heads=2, dropout=0.5).build(20)
    model = FeatureTagger(body, 3, LayerFeatures("-2..-1", "mean", 0)).train()
    batch = TextBatch(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([[True] * 3, [True, True, False]]))
    model.dropout.p = 0.0
    states = [body(batch, layers=n) for n in (2, 3)]  # the body drops nothing
    expected = (states[0] + states[1]) / 2 @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model.scores(batch), expected)
    model.scores(batch).sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == {"output.weight", "output.bias"}
    assert model.capturable
    assert not FeatureTagger(body, 3, LayerFeatures("-1", lstm=1, size=4)).capturable  # packed on the host


@pytest.mark.parametrize(
    "keys, said",
    [
        (["task.frozen_features.layers=0..9"], r"task\.frozen_features\.layers: there is no layer 9; write 0 to 1"),
        (["task.frozen_features.layers=-1", "model.kind=elmo"], r"frozen_features are a bert's, and the model is elmo"),
        (["task.frozen_features.size=3"], "size even, not 2 and 3"),
    ],
)
def test_features_that_are_not_there_are_refused(tmp_path: Path, keys: list[str], said: str) -> None:
    made = toys.recipe(tmp_path, {"kind": "tag", "length": 16, "overlap": 6}, ("a.conll", "b.conll"))
    with pytest.raises(RegardError, match=said):
        recipes.load_recipe(made, keys)


def test_features_need_a_body_that_is_trained(tmp_path: Path) -> None:
    write_sentences(tmp_path)
    task = {"kind": "tag", "length": 16, "overlap": 6, "frozen_features": {"layers": "-1"}}
    recipe = recipes.load_recipe(toys.recipe(tmp_path, task, ("train.conll", "valid.conll")))
    with pytest.raises(RegardError, match=r"task\.frozen_features are of the run that training\.init names"):
        recipe.task.prepare(recipe, None, lambda *_: None)


def test_every_word_is_tagged_or_the_sentence_is_refused(run: Path) -> None:
    model = regard.load(run, "cpu")
    words = ["w1", "ann", "w2", "rome", "w7"] * 8
    assert len(model.tag([words], long="{kind: segments, overlap: 4}")[0].tags) == 40
    assert model.tag([words], long="segments")[0].long.segments > 1
    with pytest.raises(RegardError, match="sentence 1: 40 tokens, and 14 can be read"):
        model.tag([words], long="refuse")
    with pytest.raises(RegardError, match="long is extract, and the task tag knows segments, refuse, none"):
        model.tag([words], long="extract")
