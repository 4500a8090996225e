"""The guided route: which words it leads to, which head it ends at, and that nothing is said where nothing is known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data import embedded
from regard.errors import RegardError
from regard.look import look, route
from regard.look.referent import find_reference, guess_reference, known_reference, units
from tests.look.small import TEXT, opened, translator, vectors, weights
from tests.tasks import lm_toy
from tests.training import toy

GOAT = "The goat couldn't carry the basket because it was too thirsty."
MODEL = {"layers": 2, "size": 16, "inner": 16, "heads": 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return translator(tmp_path_factory.mktemp("route"))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An untrained model whose words are those of the embedded minimal pairs, in pieces where they are long."""
    folder = tmp_path_factory.mktemp("reader")
    pairs = [each for pair in embedded.minimal_pairs("test") for each in (pair.first, pair.second)]
    for split in ("train", "valid"):
        for side, texts in (("en", [p.source for p in pairs]), ("de", [p.target for p in pairs])):
            (folder / f"{split}.{side}").write_text("\n".join([*texts, GOAT]) + "\n", encoding="utf-8")
    return opened(folder, toy.recipe(folder) | {"model": MODEL, "text": {"kind": "bpe", "size": 300}}, noise=1.0)


def share(data: dict[str, Any], place: str, query: int, keys: list[int]) -> np.ndarray:
    """The weight of every head [L, H] from a query on these keys."""
    own = next(each for each in data["places"] if each["name"] == place)
    return weights(own["weights"])[:, :, query][..., keys].sum(-1)


# --- words ---------------------------------------------------------------------------------------------------------


def test_the_corpus_knows_its_sentences_and_guesses_others() -> None:
    assert known_reference(GOAT) == ("it", "goat")
    assert known_reference(GOAT.replace("thirsty", "blue")) is None
    assert guess_reference("The goat did not carry the basket, since it was thirsty!") == ("it", "goat")
    assert guess_reference("The goat did not carry the basket, since it was heavy!") == ("it", "basket")
    assert guess_reference("The goat did not carry the basket, since it was blue!") is None
    assert guess_reference("The goat did not carry the basket, since she was thirsty!") is None


def test_words_are_found_in_their_pieces(reader: Any) -> None:
    source, target = reader.vocabulary
    german = "Die Ziege konnte den Korb nicht tragen, weil sie zu durstig war."
    ids = source.encode(GOAT), target.encode(german)
    assert len(ids[0]) > len(GOAT.split())
    found = find_reference((source, target), *ids, GOAT, ("en", "de"), None)
    assert found is not None
    words = (found.pronoun, found.referent, found.translation)
    assert [word and word[0] for word in words] == ["it", "The goat", "sie"]
    assert [source.decode([ids[0][n] for n in word[1]]) for word in words[:2] if word] == ["it", "The goat"]
    assert target.decode([ids[1][n] for n in found.translation[1]]) == "sie"
    given = find_reference((source, target), *ids, GOAT, ("en", "de"), "thirsty/durstig=basket")
    assert given is not None
    assert (given.how, given.referent[0], given.translation and given.translation[0]) == (
        "given",
        "the basket",
        "durstig",
    )


def test_characters_are_words_where_words_have_no_spaces() -> None:
    pieces = ["<pad>", "<s>", "</s>", "<unk>", "▁它", "很", "累"]

    class Sentence:
        """A SentencePiece tokenizer, in which a Chinese sentence is one word."""

        words, decode = (
            staticmethod(lambda ids: [0] * len(ids)),
            staticmethod(lambda ids: "".join(pieces[i] for i in ids).replace("▁", " ")),
        )

    assert units(Sentence(), [4, 5, 6]) == [("它", [0]), ("很", [1]), ("累", [2])]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given, said",
    [
        ("w1", "is not PRONOUN=WORD; write it as it=goat"),
        ("w7=w1", "the text has no word 'w7'; known: w1, w2"),
        ("w1=goat", "the text has no word 'goat'; known: w1, w2"),
        ("w1/W9=w2", "the output has no word 'W9'; known: W5, W4"),
    ],
)
def test_a_referent_that_is_not_there(made: Any, given: str, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        look(made, TEXT, "W5 W4 W3", referent=given)


def test_models_that_translate_nothing(tmp_path: Path) -> None:
    lm_toy.write_text(tmp_path, 20)
    made = opened(tmp_path, lm_toy.recipe(tmp_path))
    assert "route" not in look(made, "w1 w2")
    with pytest.raises(RegardError, match="translates nothing; leave out the referent"):
        look(made, "w1 w2", referent="w1=w2")


# --- heads ---------------------------------------------------------------------------------------------------------


def test_of_one_text_it_ends_where_the_referent_has_most(made: Any) -> None:
    assert "route" not in look(made, TEXT, "W5 W4 W3")
    data = look(made, TEXT, "W5 W4 W3", referent="w5/W3=w2")
    found = data["route"]
    assert found["how"] == "given"
    assert found["pairs"] is None
    assert [step["step"] for step in found["steps"]] == ["question", "usual", "single", "follows", "off"]
    for step, place, query in ((found["steps"][1], "encoder", 4), (found["steps"][3], "cross", 2)):
        own = share(data, place, query, [1])
        best = np.unravel_index(own.argmax(), own.shape)
        assert (step["place"], step["layer"] - 1, step["head"] - 1, step["query"]) == (place, *best, query)
        assert step["weight"] == pytest.approx(own.max(), abs=1e-4)
    off = found["steps"][-1]
    name = f"cross.{off['layer']}.{off['head']}"
    for part, heads in (("before", []), ("after", [name])):
        scores = look(made, TEXT, "W5 W4 W3", ablate=heads)["walk"]["scores"]
        top, rest = (np.exp(vectors(scores[group])[0, 2]) for group in ("logits", "rest"))
        at = [scores["words"][word] for word in scores["ids"][2]].index("W3")
        assert off[part] == pytest.approx(top[at] / (top.sum() + rest @ scores["counts"]), abs=2e-3)
    json.dumps(data, allow_nan=False)
    without = look(made, TEXT, "W5 W4 W3", ablate=[name], referent="w5/W3=w2")["route"]
    assert without["steps"][0]["step"] == "question"
    assert all((step["layer"], step["head"]) != (off["layer"], off["head"]) for step in without["steps"][3:])


def test_minimal_pairs_say_which_head_follows(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "PAIRS", 12)
    data = look(reader, GOAT, "Die Ziege konnte den Korb nicht tragen, weil sie zu durstig war.")
    found = data["route"]
    assert found["how"] == "known"
    steps = {step["step"]: step for step in found["steps"]}
    assert "single" not in steps
    evidence = route.measure(reader)
    assert evidence is not None
    assert len(evidence.pairs) == found["pairs"]["count"] == 12
    first, second = evidence.pairs[0].first.source, evidence.pairs[0].second.source
    assert found["pairs"]["example"].split("/")[0] == first.rstrip(".")
    assert found["pairs"]["example"].split("/")[1] == second.split()[-1]
    moved: dict[str, list[np.ndarray]] = {"encoder": [], "cross": []}
    for pair in evidence.pairs:  # once more, sentence by sentence, by the data of the page
        mass = {}
        for side, each in enumerate((pair.first, pair.second)):
            own, phrases = look(reader, each.source, each.target), []
            for noun in pair.referents:
                ids = reader.vocabulary.source.encode(each.source), reader.vocabulary.target.encode(each.target)
                named = find_reference(tuple(reader.vocabulary), *ids, each.source, ("en", "de"), f"it={noun}")  # type: ignore[arg-type]
                assert named is not None
                phrases.append(named)
            for role in moved:
                for n, named in enumerate(phrases):
                    query = (named.pronoun if role == "encoder" else named.translation)[1][0]  # type: ignore[index]
                    mass[role, side, n] = share(own, role, query, named.referent[1])
        for role, changes in moved.items():
            changes.append((mass[role, 0, 0] - mass[role, 1, 0] + mass[role, 1, 1] - mass[role, 0, 1]) / 2)
    means = {role: np.mean(changes, axis=0) for role, changes in moved.items()}
    for role, mean in means.items():
        np.testing.assert_allclose(evidence.moved[role], mean, atol=1e-4)
    last = found["steps"][-1]
    assert means[last["place"]][last["layer"] - 1, last["head"] - 1] == pytest.approx(
        max(mean.max() for mean in means.values()), abs=1e-4
    )


def test_a_model_that_has_no_encoder_attention(tmp_path: Path) -> None:
    made = translator(tmp_path, {"kind": "rnn", "preset": "bahdanau", "size": 8})
    found = look(made, TEXT, "W5 W4 W3", referent="w5/W3=w2")["route"]
    assert [step["step"] for step in found["steps"]] == ["question", "follows"]  # no head can be switched off
    assert "route" not in look(made, TEXT, "W5 W4 W3", referent="w5=w2")  # what it became is not known
