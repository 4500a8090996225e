"""Our choices in CTranslate2 against our own model: log-probabilities of given text, and translations."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.cli.interop import export_model, import_model
from regard.decoding import Beam, Greedy, Sample
from regard.decoding.shortlist import FILE, Shortlist
from regard.errors import RegardError
from regard.interop import ct2, ct2_engine
from regard.interop.ct2 import vocabulary_map_reason
from regard.interop.ct2_engine import load_ct2
from regard.models.batch import RaggedRows, collate_pairs
from regard.predict.translation import Translator
from tests.interop import toy
from tests.interop.opus import LINES, make_trained

ctranslate2 = pytest.importorskip("ctranslate2")

SOURCES = [source for source, _ in LINES[:30]]

EXPRESSED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "halves, swish, bias": {
        "position": {"kind": "sinusoidal", "layout": "halves"},
        "activation": "swish",
        "output_bias": True,
    },
    "pre-norm, gelu": {"residual": "pre_norm", "activation": "gelu", "epsilon": 0.1},
    "pre-norm, gates": {"residual": "pre_norm", "activation": "swiglu", "share": "none"},
    "tanh": {"activation": "gelu_tanh", "scale_embedding": False, "share": "target"},
    "no positions": {"position": "none"},
    "learned": {"position": {"kind": "learned", "length": 80}},
    "shaw": {"position": {"kind": "relative", "distance": 3}},
    "shaw on keys, dot": {"position": {"kind": "relative", "terms": "keys"}, "attention": {"score": "dot"}},
    "shaw by layer": {"decoder_layers": 2, "position": [{"kind": "relative", "distance": 2}] * 2},
    "rotary": {"position": "rotary"},
    "rotary by halves": {"position": {"kind": "rotary", "layout": "halves", "base": 500.0}},
    "t5": {"position": {"kind": "t5", "buckets": 8, "distance": 10}},
    "alibi in the decoder": {"position": {"encoder": "t5", "decoder": "alibi"}},
    "dot": {"attention": {"score": "dot"}},
    "general": {"attention": {"score": "general"}},
    "scores by layer": {"attention": {"score": ["dot", "scaled_dot"]}},
    "one matrix for queries and keys": {"attention": {"projection": "shared"}},
}


def scored(translator: Any, lines: list[tuple[str, str]]) -> torch.Tensor:
    """What CTranslate2 gives to each pair, without the search."""
    v = translator.vocabulary
    rows = v.source.encode_batch([s for s, _ in lines])
    source = [[translator.source_tokens[i] for i in (*row, v.source.eos)] for row in rows]
    target = [[translator.target_tokens[i] for i in row] for row in v.target.encode_batch([t for _, t in lines])]
    return torch.tensor([sum(result.log_probs) for result in translator.ct2.score_batch(source, target)])


@pytest.mark.parametrize("name", EXPRESSED)
def test_log_probabilities(tmp_path: Path, name: str) -> None:
    ours = toy.make(tmp_path / "run", **EXPRESSED[name])
    fast = load_ct2(tmp_path / "run", "cpu", "float32")
    wanted = torch.tensor([log_probability for log_probability, _ in ours.score(LINES[:20])])
    torch.testing.assert_close(scored(fast, LINES[:20]), wanted, atol=2e-3, rtol=1e-5)
    assert wanted.std() > 5  # sentences are told apart


@pytest.mark.parametrize("name", EXPRESSED)
def test_log_probabilities_step_by_step(tmp_path: Path, name: str) -> None:
    """Cached decoding is other code there than scoring: what it thinks of its own words, our model thinks too."""
    ours = toy.make(tmp_path / "run", **EXPRESSED[name])
    fast = load_ct2(tmp_path / "run", "cpu", "float32")
    v = ours.vocabulary
    source = v.source.encode_batch(SOURCES)
    results = fast.ct2.translate_batch(
        [[fast.source_tokens[i] for i in (*row, v.source.eos)] for row in source],
        beam_size=4,
        length_penalty=0,
        return_scores=True,
        return_end_token=True,
        min_decoding_length=0,
        max_decoding_length=12,
    )
    said = [[fast.target_ids[piece] for piece in result.hypotheses[0]] for result in results]
    batch = collate_pairs(RaggedRows.of(source), RaggedRows.of(said), v.source, v.target)
    with torch.no_grad():
        logp = ours.model(batch).log_softmax(-1).split([len(row) + 1 for row in said])
    wanted = [part[range(len(row)), row].sum().item() for part, row in zip(logp, said, strict=True)]
    assert [result.scores[0] for result in results] == pytest.approx(wanted, abs=2e-3)
    assert sum(map(len, said)) > 100


REFUSED: dict[str, dict[str, Any]] = {
    "model.residual is none, where CTranslate2 has post_norm or pre_norm": {"residual": "none"},
    "model.norm is batch": {"norm": "batch"},
    "model.feed_forward is none": {"feed_forward": "none"},
    "model.position.encoder is alibi": {"position": "alibi"},
    "model.position.encoder is a list": {"position": ["rotary", "sinusoidal"]},
    "model.position.encoder joins by concat": {"position": {"kind": "learned", "length": 80, "join": "concat"}},
    "general beside rotary": {"position": "rotary", "attention": {"score": "general"}},
    "model.attention.cross.score is additive": {"attention": {"cross": {"score": "additive"}}},
    r"model.attention.encoder.pattern is window\(3\)": {"attention": {"encoder": {"pattern": "window(3)"}}},
    "model.attention.decoder.normalise is sparsemax": {"attention": {"decoder": {"normalise": "sparsemax"}}},
    "model.attention.encoder.d_v is 6": {"attention": {"encoder": {"d_v": 6}}},
    "model.kind is rnn": {"kind": "rnn", "layers": 1, "size": 16},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_it_cannot_express_is_named(tmp_path: Path, said: str) -> None:
    toy.make(tmp_path / "run", **REFUSED[said])
    with pytest.raises(RegardError, match=f"CTranslate2 cannot express this model: .*{said}"):
        load_ct2(tmp_path / "run", "cpu")
    assert not list((tmp_path / "run").glob("*ct2*"))


# --- a model that speaks --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    place = tmp_path_factory.mktemp("trained")
    make_trained(place / "theirs")
    import_model("hf", str(place / "theirs"), place / "run")
    return place / "run"


@pytest.mark.parametrize("search", [Greedy(), Beam(size=4), Beam(size=5, length_penalty=0.6)])
def test_the_same_translations(trained: Path, search: Any) -> None:
    """Swish, a bias, padding as the start: an imported Marian model."""
    lines = [source for source, _ in LINES[:150]]
    ours, fast = regard.load(trained, "cpu"), load_ct2(trained, "cpu", "float32")
    wanted, found = ours.nbest(lines, 1, search), fast.nbest(lines, 1, search)
    same = [n for n in range(len(lines)) if found[n][0].text == wanted[n][0].text]
    assert len(same) >= 0.99 * len(lines)
    ended = [n for n in same if len(found[n][0].tokens) < search.limit(len(ours.vocabulary.source.encode(lines[n])))]
    assert len(ended) > 100
    for n in ended:  # at its limit, a sentence of theirs stops and does not pay for the end
        assert found[n][0].score == pytest.approx(wanted[n][0].score, abs=5e-3)
        assert found[n][0].log_probability == pytest.approx(wanted[n][0].log_probability, abs=1e-2)
    assert len({t[0].text for t in wanted}) > 30


def test_int8_is_close(trained: Path) -> None:
    lines = [source for source, _ in LINES[:100]]
    ours, fast = regard.load(trained, "cpu"), load_ct2(trained, "cpu", "int8")
    same = sum(a == b for a, b in zip(ours.translate(lines), fast.translate(lines), strict=True))
    assert same > 50
    load_ct2(trained, "cpu", "float32")
    files = {name: trained / f"ct2-{name}" / "model.bin" for name in ("int8", "float32")}
    assert files["int8"].stat().st_size < 0.8 * files["float32"].stat().st_size


def test_int8_leaves_the_model_as_it_is(trained: Path, tmp_path: Path) -> None:
    """The library quantises in place what it is given."""
    ours = regard.load(trained, "cpu")
    before = {name: tensor.clone() for name, tensor in ours.model.state_dict().items()}
    (tmp_path / "out").mkdir()
    ct2.export_ct2(ours, trained, tmp_path / "out", "int8")
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.model.state_dict().items())


def test_order_empty_lines_and_nbest(trained: Path) -> None:
    fast = load_ct2(trained, "cpu", "float32")
    lines = ["", LINES[0][0], "  ", LINES[1][0] + " " + LINES[2][0], LINES[3][0], ""]
    told: list[tuple[int, int]] = []
    found = fast.nbest(lines, 3, Beam(size=4), batch_tokens=40, progress=lambda what, n, of: told.append((n, of)))
    assert [len(options) for options in found] == [0, 3, 0, 3, 3, 0]
    alone = [fast.nbest([line], 3, Beam(size=4))[0] for line in lines]
    assert [[t.text for t in options] for options in found] == [[t.text for t in options] for options in alone]
    assert all(options[n].score >= options[n + 1].score for options in found for n in range(len(options) - 1))
    assert told[-1] == (3, 6)


def test_text_is_made_in_stretches(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first lines while the rest is computed; what was cut is told once."""
    fast = load_ct2(trained, "cpu", "float32")
    lines = ["", *SOURCES[:7], "", "the letters " * 700, *SOURCES[7:]]
    whole, told = fast.translate(lines, warn=lambda sentence: None), []
    monkeypatch.setattr(ct2_engine, "DETOKENIZED", 5)
    assert fast.translate(lines, warn=told.append) == whole
    assert told == ["1 line(s) longer than 63 pieces were cut, first line 10; 2,037 of 2,100 pieces were dropped"]


@pytest.mark.parametrize("search", [Greedy(max_ratio=0.5, max_extra=0), Beam(size=2, max_ratio=0.5, max_extra=0)])
def test_without_scores_the_same_words(trained: Path, search: Any) -> None:
    fast = load_ct2(trained, "cpu", "float32")
    scored, bare = (fast.nbest(SOURCES, 1, search, scores=scores) for scores in (True, False))
    assert [options[0].tokens for options in bare] == [options[0].tokens for options in scored]
    assert not any(math.isnan(options[0].score) for options in scored)
    assert all(math.isnan(options[0].score) for options in bare)


def test_each_line_keeps_its_own_limit(trained: Path) -> None:
    """A short line in a batch with a long one ends where it would alone."""
    fast = load_ct2(trained, "cpu", "float32")
    tight = Greedy(max_ratio=0.5, max_extra=0)
    lines = [LINES[0][0], f"{LINES[0][0]} {LINES[1][0]}"]
    found = [options[0].tokens for options in fast.nbest(lines, 1, tight)]
    assert found == [options[0].tokens for options in regard.load(trained, "cpu").nbest(lines, 1, tight)]
    assert len(found[0]) == tight.limit(len(fast.vocabulary.source.encode(lines[0]))) < len(found[1])


def test_what_the_engine_does_not_do_is_told(trained: Path) -> None:
    fast = load_ct2(trained, "cpu", "float32")
    with pytest.raises(RegardError, match="--sample"):
        fast.translate(SOURCES, Sample())
    with pytest.raises(RegardError, match=r"divides by nᵅ \(decoding\.penalty: power\), not as gnmt"):
        fast.translate(SOURCES, Beam(size=2, penalty="gnmt"))
    with pytest.raises(RegardError, match="--alignments"):
        fast.translate(SOURCES, attention=("cross",))
    with pytest.raises(RegardError, match="--alignments"):
        fast.check_alignment()
    with pytest.raises(RegardError, match="--trees"):
        fast.translate(SOURCES, trees=[])
    with pytest.raises(RegardError, match="--phrases"):
        fast.translate(SOURCES, Beam(size=2), phrases=[["die"]] * len(SOURCES))
    with pytest.raises(RegardError, match="--with"):
        fast.ensemble([fast])
    with pytest.raises(RegardError, match="a beam of 2 has no 3 best"):
        fast.nbest(SOURCES, 3, Beam(size=2))
    with pytest.raises(RegardError, match=r"line 1 has .* pieces, and the exported model has 1,024 positions"):
        fast.translate(["the letters " * 700], long="translate")
    with pytest.raises(RegardError, match="--precision is 'int4'; write float32 or int8"):
        load_ct2(trained, "cpu", "int4")


@pytest.mark.parametrize("search", [Greedy(), Beam(size=4)])
def test_prefixes(trained: Path, search: Any) -> None:
    """Half of the lines must begin as another line's translation does."""
    ours, fast = regard.load(trained, "cpu"), load_ct2(trained, "cpu", "float32")
    lines = [source for source, _ in LINES[:60]]
    others = [" ".join(target.split()[:2]) for _, target in LINES[60:200]]
    known = [start for start in others if ours.vocabulary.target.unk not in ours.vocabulary.target.encode(start)]
    starts = [start if n % 2 else "" for n, start in enumerate(known[:60])]
    wanted, found = (t.nbest(lines, 1, search, prefixes=starts) for t in (ours, fast))
    target = fast.vocabulary.target
    for start, (translation,) in zip(starts, found, strict=True):
        ids = target.encode(start)
        assert translation.tokens[: len(ids)] == ids
    same = [n for n in range(len(lines)) if found[n][0].tokens == wanted[n][0].tokens]
    assert len(same) >= 0.95 * len(lines)
    assert ours.translate(lines, search) != [options[0].text for options in wanted]
    ended = [n for n in same if len(found[n][0].tokens) < search.limit(len(ours.vocabulary.source.encode(lines[n])))]
    assert [found[n][0].score for n in ended] == pytest.approx([wanted[n][0].score for n in ended], abs=5e-3)
    with pytest.raises(RegardError, match=r"prefixes, line 1: the output cannot begin with .* there is room for"):
        fast.translate(lines[:1], search, prefixes=["die Katze " * 50])


def test_long_lines_in_parts(trained: Path) -> None:
    fast = load_ct2(trained, "cpu", "float32")
    parts = [source for source in SOURCES if source.count(".") == 1]
    whole = " ".join(parts)
    assert len(fast.vocabulary.source.encode(whole)) > 100
    found = fast.translate([parts[0], whole], long="segment")
    assert found == [fast.translate(parts[:1])[0], " ".join(fast.translate(parts))]


def test_long_lines_are_cut_with_a_word(trained: Path) -> None:
    fast = load_ct2(trained, "cpu", "float32")
    said: list[str] = []
    fast.translate(["the letters " * 700], warn=said.append)
    assert said == ["1 line(s) longer than 63 pieces were cut, first line 1; 2,037 of 2,100 pieces were dropped"]


def test_scoring_is_our_own_models(trained: Path) -> None:
    ours, fast = regard.load(trained, "cpu"), load_ct2(trained, "cpu", "int8")
    assert fast.score(LINES[:3]) == ours.score(LINES[:3])


# --- the folder beside the model ------------------------------------------------------------------------------------


def test_made_once_and_anew_when_the_model_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    toy.make(run)
    made: list[str] = []
    export = ct2.export_ct2

    def counted(translator: Translator, run: Path, out: Path, precision: str) -> str:
        made.append(precision)
        return export(translator, run, out, precision)

    monkeypatch.setattr(ct2, "export_ct2", counted)
    for _ in range(2):
        load_ct2(run, "cpu", "int8")
    assert made == ["int8"]
    load_ct2(run, "cpu", "float32")
    assert made == ["int8", "float32"]
    before = regard.load(run, "cpu").translate(SOURCES[:3])
    tensors = {name: -tensor for name, tensor in regard.load(run, "cpu").model.state_dict().items()}
    from regard.io.tensors import unique_state_dict, write_tensors

    changed = regard.load(run, "cpu")
    changed.model.load_state_dict(tensors)
    write_tensors(run / "model.safetensors", unique_state_dict(changed.model))
    fast = load_ct2(run, "cpu", "int8")
    assert made == ["int8", "float32", "int8"]
    assert fast.translate(SOURCES[:3]) != before
    (run / "ct2-int8" / "regard.json").write_text("{")  # damaged
    load_ct2(run, "cpu", "int8")
    assert made[-2:] == ["int8", "int8"]


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.make(tmp_path / "run")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    fast = load_ct2(tmp_path / "run", "cpu", "float32")
    assert not (tmp_path / "run" / "ct2-float32").exists()
    assert len(fast.translate(SOURCES[:2])) == 2


def test_a_device_that_is_not_there(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ct2_engine, "pick_device", lambda name: torch.device("mps"))
    with pytest.raises(RegardError, match=r"CTranslate2 cannot open .*ct2-int8: .*mps"):
        load_ct2(trained, "mps")


def test_export_is_a_model_that_ctranslate2_loads(tmp_path: Path) -> None:
    toy.make(tmp_path / "run")
    export_model("ct2", tmp_path / "run", tmp_path / "theirs", "int8")
    theirs = ctranslate2.Translator(str(tmp_path / "theirs"))
    assert theirs.compute_type.startswith("int8")
    names = json.loads((tmp_path / "theirs" / "shared_vocabulary.json").read_text())
    assert names[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert theirs.translate_batch([["<unk>"]])[0].hypotheses
    with pytest.raises(RegardError, match="--precision is 'bf16'"):
        export_model("ct2", tmp_path / "run", tmp_path / "other", "bf16")


def test_a_shortlist_is_its_map_of_vocabularies(trained: Path, tmp_path: Path) -> None:
    """Pieces of an imported model have no spaces. Few words: no others are said; all words: nothing changes."""
    run, lines = tmp_path / "run", [source for source, _ in LINES[:20]]
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("ct2-*"))
    plain = load_ct2(run, "cpu", "float32")
    target = plain.vocabulary.target
    none = np.full((plain.vocabulary.source.size, 1), -1)
    Shortlist(np.arange(target.size), none).save(run / FILE)
    made = load_ct2(run, "cpu", "float32", shortlist=True)
    assert made.translate(lines, Greedy()) == plain.translate(lines, Greedy())
    said = {token for best in plain.nbest(lines, 1, Greedy()) for token in best[0].tokens}
    few = np.array(sorted({target.pad, target.unk, target.bos, target.eos, *sorted(said)[::2]}))
    Shortlist(few, none).save(run / FILE)
    restricted = load_ct2(run, "cpu", "float32", shortlist=True)
    tokens = {token for best in restricted.nbest(lines, 1, Greedy()) for token in best[0].tokens}
    assert tokens <= set(few.tolist())
    assert not said <= set(few.tolist())
    assert "has spaces between pieces, and ' w'" in str(vocabulary_map_reason([[" w", "x"]]))
