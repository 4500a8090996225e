"""A CTranslate2 export without regard: its tokenizers, and its example in a process that cannot import regard."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

import regard
from regard import config
from regard.cli.interop import export_model, import_model
from regard.interop.ct2_engine import load_ct2
from regard.io import run_folder as folder
from regard.io.tensors import unique_state_dict, write_tensors
from regard.models.batch import RaggedRows, collate_pairs
from regard.predict.translation import Translator
from tests.interop import toy
from tests.interop.opus import CODES, LINES, make_tokenizer, make_trained
from tests.interop.test_export import HARD

ctranslate2 = pytest.importorskip("ctranslate2")

SEARCHES = [{"kind": "greedy"}, {"kind": "beam", "size": 4, "length_penalty": 0.6}]
SOURCES = [
    "",
    *(source for source, _ in LINES[:80]),
    "  ",
    "<unk> </s>?",
    "Where are the ½ cats </s> now?",
    "the " * 90,
]
ALONE = (
    "import runpy, sys; sys.modules.update(dict.fromkeys(('regard', 'torch', 'transformers'))); "
    "runpy.run_path(sys.argv[1], run_name='__main__')"
)


def run_example(export: Path, lines: list[str]) -> list[str]:
    """What example.py prints, in a process that can import neither regard nor torch."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(export / "example.py")],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        cwd=export.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n").split("\n")


def make_trained_here(home: Path, said: dict[str, Any], steps: int = 100, **keys: Any) -> None:
    """A run that has learned a little, so that its sentences differ and end."""
    small = {"layers": 1, "decoder_layers": 1, "size": 32, "inner": 64, "dropout": 0.0}
    ours = toy.make(home, said, {"kind": "greedy", "max_extra": 40}, **small | keys)
    torch.manual_seed(0)
    for parameter in ours.model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.xavier_uniform_(parameter)
    ours.model.train()
    v, optimiser = ours.vocabulary, torch.optim.Adam(ours.model.parameters(), 1e-2)
    for step in range(steps):
        lines = LINES[step % 25 * 32 : step % 25 * 32 + 32]
        source, target = (v.source.encode_batch([s for s, _ in lines]), v.target.encode_batch([t for _, t in lines]))
        batch = collate_pairs(RaggedRows.of(source), RaggedRows.of(target), v.source, v.target)
        logits = ours.model(batch)
        wanted = torch.tensor([i for row in target for i in (*row, v.target.eos)])
        torch.nn.functional.cross_entropy(logits, wanted).backward()
        optimiser.step()
        optimiser.zero_grad()
    write_tensors(home / folder.WEIGHTS, unique_state_dict(ours.model))


def searching(run: Path, search: dict[str, Any]) -> Translator:
    """The run with another search in its recipe."""
    plain = config.read_yaml(run / folder.CONFIG).plain()
    plain["decoding"] = search | {"max_extra": 40}
    (run / folder.CONFIG).write_text(config.dump_yaml(plain))
    (run / folder.MANIFEST).unlink(missing_ok=True)  # a config changed by hand
    return regard.load(run, "cpu")


def finished(ours: Translator, lines: list[str]) -> list[int]:
    """The lines whose translations end before their limit."""
    lengths = [len(row) for row in ours.vocabulary.source.encode_batch(lines)]
    found = ours.nbest(lines, 1, warn=lambda sentence: None)
    limit = ours.recipe.decoding.limit
    return [n for n, row in enumerate(found) if not row or len(row[0].tokens) < limit(min(lengths[n], 60))]


def compare(run: Path, out: Path, lines: list[str]) -> None:
    """Greedy and beam: the same words as `--engine ct2`; as our own engine too, but for a few beams."""
    for n, search in enumerate(SEARCHES):
        ours = searching(run, search)
        export_model("ct2", run, out / str(n), "float32")
        found, wanted = run_example(out / str(n), lines), ours.translate(lines, warn=lambda sentence: None)
        fast = load_ct2(run, "cpu", "float32").translate(lines, warn=lambda sentence: None)
        ended = finished(ours, lines)  # the example has one limit for all lines
        assert len(ended) > 0.8 * len(lines)
        assert [found[n] for n in ended] == [fast[n] for n in ended]
        different = [n for n in ended if found[n] != wanted[n]]
        assert len(different) <= (len(lines) // 20 if search["kind"] == "beam" else 0)
        assert len(set(wanted)) > 20


MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "post-norm, sinusoidal, bpe": ({"kind": "bpe", "size": 200}, {}),
    "pre-norm, rotary, unigram": ({"kind": "unigram", "size": 150}, {"residual": "pre_norm", "position": "rotary"}),
    "apart, lower": (
        {"kind": "wordpiece", "size": 150, "shared": False, "lower": True, "normalise": "nfkc"},
        {"share": "target"},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_example_says_what_regard_says(tmp_path: Path, name: str) -> None:
    said, keys = MODELS[name]
    make_trained_here(tmp_path / "run", said, **keys)
    compare(tmp_path / "run", tmp_path / "out", SOURCES)


# --- tokenizers -----------------------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "bpe": {"kind": "bpe", "size": 200, "dropout": 0.1},
    "lower": {"kind": "bpe", "size": 200, "lower": True, "normalise": "nfkc"},
    "unigram": {"kind": "unigram", "size": 150, "alpha": 0.2},
    "byte_bpe": {"kind": "byte_bpe", "size": 400},
    "char": {"kind": "char", "normalise": "nfc"},
    "word": {"kind": "word"},
    "spaces": {"kind": "word", "segmenter": "spaces", "lower": True},
    "wordpiece": {"kind": "wordpiece", "size": 200},
    "bert": {"kind": "bert", "size": 200},
    "apart": {"kind": "bpe", "size": 150, "shared": False},
}
MORE = ["ΟΔΟΣ ΣΑΣ σ", "a\x1cb\x85c\u2028d", "a</s>b</s>", "</s>", "<s>x <pad>", "我爱你 <s>我</s>x", "x<unk>"]


@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_those_of_the_vocabulary(tmp_path: Path, name: str) -> None:
    """For every kind: the same ids as ours, in the order of CTranslate2's vocabulary, and the same text again."""
    ours = toy.make(tmp_path / "run", KINDS[name], share="target" if name == "apart" else "all")
    export_model("ct2", tmp_path / "run", tmp_path / "out", "float32")
    for side, tokenizer in zip(("source", "target"), ours.vocabulary, strict=True):
        prefix = f"{side}_" if name == "apart" else ""
        theirs = Tokenizer.from_file(str(tmp_path / "out" / f"{prefix}tokenizer.json"))
        words = json.loads((tmp_path / "out" / f"{prefix or 'shared_'}vocabulary.json").read_text("utf-8"))
        assert words == [theirs.id_to_token(i) for i in range(theirs.get_vocab_size())]
        end = "[SEP]" if name == "bert" else "</s>"
        for line in [*HARD, *MORE, *(text for pair in LINES[:50] for text in pair)]:
            found, ids = theirs.encode(line), tokenizer.encode(line)
            known = [token if token in words else words[tokenizer.unk] for token in found.tokens]
            assert known == [words[i] for i in found.ids]  # Unigram gives what it does not know as it is
            assert found.tokens[-1] == end
            assert not {tokenizer.pad, tokenizer.bos, tokenizer.eos} & set(found.ids[:-1]), line
            if name != "wordpiece" or not any(word in line for word in ("</s>", "<s>", "<pad>", "<unk>")):
                assert found.ids[:-1] == ids, line
            assert theirs.decode(ids).replace("[UNK]", "<unk>") == tokenizer.decode(ids)


def test_chinese_is_joined_as_ours(tmp_path: Path) -> None:
    ours = toy.make(tmp_path / "run", {"kind": "word"})
    vocabulary = ours.vocabulary.target
    export_model("ct2", tmp_path / "run", tmp_path / "out", "float32")
    document = json.loads((tmp_path / "out" / "tokenizer.json").read_text("utf-8"))
    many = len(document["model"]["vocab"])
    document["model"]["vocab"] |= {"我们": many, "爱": many + 1}
    theirs = Tokenizer.from_str(json.dumps(document))
    mixed = [many, many + 1, 4, many, 5]
    pieces = [theirs.id_to_token(i) for i in mixed]
    assert theirs.decode(mixed) == vocabulary.piece_format.join(pieces) == f"我们爱 {pieces[2]} 我们 {pieces[4]}"


def test_a_vocabulary_that_has_the_name_of_a_special_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word `</s>` of the training text: the end keeps its spaces, on both sides."""
    monkeypatch.setattr(toy, "LINES", [(f"{source} </s>", target) for source, target in LINES])
    ours = toy.make(tmp_path / "run", {"kind": "word", "shared": False}, share="target")
    assert "</s>" in ours.vocabulary.source.pieces
    export_model("ct2", tmp_path / "run", tmp_path / "out", "float32")
    theirs = Tokenizer.from_file(str(tmp_path / "out" / "source_tokenizer.json"))
    assert theirs.encode("the </s>").ids == [*ours.vocabulary.source.encode("the </s>"), ours.vocabulary.source.eos]
    fast = load_ct2(tmp_path / "run", "cpu", "float32")
    lines = [source for source, _ in LINES[:10]]
    assert fast.source_tokens[3] == fast.target_tokens[3] == " </s> "
    assert fast.translate(lines) == ours.translate(lines)


# --- what tokenizers cannot express ---------------------------------------------------------------------------------


def test_moses_by_sacremoses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sacremoses")
    make_trained_here(tmp_path / "run", {"kind": "bpe", "size": 200, "moses": True, "lower": True})
    compare(tmp_path / "run", tmp_path / "out", [line for line in SOURCES if "<" not in line])
    said = capsys.readouterr().err
    sentence = "`tokenizers` alone cannot express its text (it cuts text by Moses' rules), so example.py also needs"
    assert f"{sentence} sacremoses\n" in said
    assert (
        "cannot express this vocabulary: it cuts text by Moses' rules." in (tmp_path / "out/0/example.py").read_text()
    )


def test_chinese_by_jieba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jieba")
    chinese = ["我们", "喜欢", "北京", "大学", "的", "图书馆", "，", "他们", "也", "喜欢", "中国", "NLP", "。"]
    texts = ["".join(chinese[n % 7 :] + chinese[: n % 5]) for n in range(len(LINES))]
    swapped = [(text, target) for text, (_, target) in zip(texts, LINES, strict=True)]
    monkeypatch.setattr(toy, "LINES", swapped)
    ours = toy.make(tmp_path / "run", {"kind": "word", "segmenter": "jieba", "lower": True}, {"kind": "greedy"})
    export_model("ct2", tmp_path / "run", tmp_path / "out", "float32")
    theirs = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    ids = ours.vocabulary.source.encode(texts[0])
    assert theirs.decode(ids) == ours.vocabulary.source.decode(ids)
    assert "jieba.cut(line)" in (tmp_path / "out" / "example.py").read_text()
    lines = [*texts[:12], "Don't stop, NLP!", ""]
    found, wanted = run_example(tmp_path / "out", lines), ours.translate(lines)
    assert [a[: len(b)] for a, b in zip(found, wanted, strict=True)] == wanted  # the example has one limit for all


def test_an_imported_model_by_sentencepiece(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("sentencepiece")
    make_trained(tmp_path / "theirs")
    import_model("hf", str(tmp_path / "theirs"), tmp_path / "run")
    codes = [f"{CODES[1]} {LINES[0][0]}", f"{CODES[0]}{LINES[1][0]}"]
    compare(tmp_path / "run", tmp_path / "out", [*(line for line in SOURCES if "<" not in line), *codes])


# --- Hugging Face's form --------------------------------------------------------------------------------------------


def test_the_tokenizer_for_hugging_face_gives_the_same_tokens(tmp_path: Path) -> None:
    """Special tokens are spelled as CTranslate2 knows them, and found at the end alone."""
    transformers = pytest.importorskip("transformers")
    ours = toy.make(tmp_path / "run", {"kind": "unigram", "size": 150}, {"kind": "beam", "size": 3, "max_extra": 12})
    export_model("hf", tmp_path / "run", tmp_path / "hf", "float32")
    export_model("ct2", tmp_path / "run", tmp_path / "ct2", "float32")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert (theirs.pad_token, theirs.unk_token, theirs.bos_token, theirs.eos_token) == ("<pad>", "<unk>", "<s>", "</s>")
    file = Tokenizer.from_file(str(tmp_path / "ct2" / "tokenizer.json"))
    lines = [*HARD, *MORE, *(source for source, _ in LINES[:30])]
    rows = [theirs.convert_ids_to_tokens(theirs(line).input_ids) for line in lines]
    unk = theirs.unk_token
    assert rows == [[t if file.token_to_id(t) is not None else unk for t in file.encode(line).tokens] for line in lines]
    search = {"beam_size": 3, "length_penalty": 1.0, "min_decoding_length": 0, "max_decoding_length": 5}
    found = ctranslate2.Translator(str(tmp_path / "ct2")).translate_batch(rows, **search)
    fast = load_ct2(tmp_path / "run", "cpu", "float32")
    same = fast.ct2.translate_batch([[fast.source_tokens[i] for i in ours_row(ours, line)] for line in lines], **search)
    assert [each.hypotheses for each in found] == [each.hypotheses for each in same]


def ours_row(ours: Translator, line: str) -> list[int]:
    source = ours.vocabulary.source
    return [*source.encode(line), source.eos]


def test_what_ctranslate2s_own_converter_makes_of_it(tmp_path: Path) -> None:
    """It begins with a vector of zeros and drops the last piece: right for OPUS-MT's models, refused for ours."""
    transformers = pytest.importorskip("transformers")
    from ctranslate2.converters import TransformersConverter

    made = make_trained(tmp_path / "theirs")
    with torch.no_grad():
        made.model.shared.weight[-1] = 0.0  # padding, which begins, as it is in OPUS-MT's models
    made.save_pretrained(tmp_path / "theirs")
    import_model("hf", str(tmp_path / "theirs"), tmp_path / "run")
    export_model("hf", tmp_path / "run", tmp_path / "hf", "float32")
    TransformersConverter(str(tmp_path / "hf")).convert(str(tmp_path / "converted"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    lines = [source for source, _ in LINES[:60]]
    rows = [tokenizer.convert_ids_to_tokens(tokenizer(line).input_ids) for line in lines]
    found = ctranslate2.Translator(str(tmp_path / "converted")).translate_batch(rows, beam_size=1)
    texts = ["".join(each.hypotheses[0]).replace("▁", " ").strip() for each in found]
    ours = searching(tmp_path / "run", SEARCHES[0])
    wanted = ours.translate(lines)
    ended = finished(ours, lines)
    assert [texts[n] for n in ended] == [wanted[n] for n in ended]
    assert len(ended) > 20
    toy.make(tmp_path / "ours")
    export_model("hf", tmp_path / "ours", tmp_path / "out", "float32")
    with pytest.raises(ValueError, match="vocabulary 0 has size 200 but the model expected a vocabulary of size 199"):
        TransformersConverter(str(tmp_path / "out")).convert(str(tmp_path / "other"))


@pytest.mark.parametrize("fallback", [False, True])
def test_a_sentencepiece_file_goes_along(tmp_path: Path, fallback: bool, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sentencepiece")
    make_tokenizer(tmp_path / "spm", size=450 if fallback else 220, byte_fallback=fallback)
    said = {"kind": "sentencepiece", "path": str(tmp_path / "spm" / "source.spm"), "lower": True, "normalise": "nfkc"}
    ours = toy.make(tmp_path / "run", said, {"kind": "greedy"})
    export_model("ct2", tmp_path / "run", tmp_path / "out", "float32")
    assert (tmp_path / "out" / "tokenizer.model").is_file()
    assert "(its kind is sentencepiece), so example.py also needs sentencepiece\n" in capsys.readouterr().err
    lines = [*(source for source, _ in LINES[:12]), "Ünïcödé ½ 東京", ""]
    found, wanted = run_example(tmp_path / "out", lines), ours.translate(lines)
    assert [a[: len(b)].rstrip("\ufffd") for a, b in zip(found, wanted, strict=True)] == [
        text.rstrip("\ufffd") for text in wanted
    ]
    (tmp_path / "spm" / "source.spm").unlink()
    export_model("ct2", tmp_path / "run", tmp_path / "without", "float32")
    assert "example.py needs tokenizer.model beside it, which the run does not have\n" in capsys.readouterr().err
