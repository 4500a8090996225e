import gzip
import os
from pathlib import Path

import pytest

from regard.data import catalog, formats
from regard.data.config import Corpus
from regard.data.datasets import DATASETS
from regard.data.readers import TextRecord, read_corpus
from regard.errors import RegardError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_direction_follows_the_languages_asked_for(folder: Path):
    put(folder, "multi30k/val.en.gz", "a dog\n")
    put(folder, "multi30k/val.de", "ein Hund\n")  # unpacked by hand
    corpus = Corpus(set="multi30k:val")
    assert list(read_corpus(corpus, languages=("en", "de"))) == [TextRecord(1, ("a dog", "ein Hund"))]
    assert list(read_corpus(corpus, languages=("de", "en"))) == [TextRecord(1, ("ein Hund", "a dog"))]
    assert next(formats.read_set_texts("multi30k:valid", ("de", "en"))).fields == ("ein Hund", "a dog")
    assert [p.name for p in catalog.set_files("multi30k:val", ("de", "en"))] == ["val.de", "val.en.gz"]


def test_a_language_the_set_does_not_have(folder: Path):
    with pytest.raises(RegardError, match="multi30k has no text in it; it has en, de, fr"):
        formats.read_set_texts("multi30k:train", ("en", "it"))


def test_not_on_this_machine(folder: Path):
    with pytest.raises(RegardError, match=r"train\.en\.gz is not on this machine .*regard data get multi30k"):
        list(formats.read_set_texts("multi30k:train", ("en", "de")))
    with pytest.raises(RegardError, match=r"see https://github\.com/NiuTrans"):
        list(formats.read_set_texts("classical-modern-zh:train", ("lzh", "zh")))


def test_found_in_the_cache_after_the_data_folder(folder: Path, tmp_path: Path):
    put(tmp_path / "cache" / "data", "tatoeba-en-de/valid.tsv.gz", "from\tcache\n")
    assert next(formats.read_set_texts("tatoeba-en-de:valid", ("en", "de"))).fields == ("from", "cache")
    put(folder, "tatoeba-en-de/valid.tsv", "from\tfolder\n")
    assert next(formats.read_set_texts("tatoeba-en-de:valid", ("en", "de"))).fields == ("from", "folder")


@pytest.mark.parametrize(
    "reference, said",
    [
        ("multi31k:train", "did you mean multi30k"),
        ("multi30k:trian", "train, valid, test"),
        ("multi30k", "multi30k:SPLIT"),
    ],
)
def test_unknown_names(reference: str, said: str):
    with pytest.raises(RegardError, match=said):
        catalog.resolve_set(reference)


def test_files_of_different_length(folder: Path):
    put(folder, "multi30k/val.en", "one\ntwo\n")
    put(folder, "multi30k/val.de", "eins\n")
    with pytest.raises(RegardError, match=r"val\.en\.gz|val\.en, val\.de differ in lines"):
        list(formats.read_set_texts("multi30k:val", ("en", "de")))
    with pytest.raises(RegardError, match="differ in lines"):
        list(formats.read_set_texts("multi30k:val", ("de", "en")))


def test_glue_quotes_are_text(folder: Path):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    put(folder, "glue/MRPC/train.tsv", "\ufeff" + header + '1\t7\t8\tHe said .\t" He did .\n0\t9\t9\t"a" b\tc\n')
    first, second = formats.read_set("glue/mrpc", "train")
    assert first == {"sentence1": "He said .", "sentence2": '" He did .', "label": "1", "number": 2}
    assert second["sentence1"] == '"a" b'


def test_glue_layouts(folder: Path):
    put(folder, "glue/CoLA/dev.tsv", "gj04\t0\t*\tThe a cat.\ngj04\t1\t\tA cat.\n")  # no header
    assert [(r["sentence"], r["label"]) for r in formats.read_set("glue/CoLA", "dev")] == [
        ("The a cat.", "0"),
        ("A cat.", "1"),
    ]
    put(folder, "glue/SST-2/dev.tsv", "sentence\tlabel\nfine work \t1\n")
    assert next(formats.read_set("glue/SST-2", "valid")) == {"sentence": "fine work", "label": "1", "number": 2}
    put(folder, "glue/STS-B/dev.tsv", "\t".join("abcdefghij") + "\n" + "\t".join("0123456") + "\tx\ty\t4.750\n")
    assert next(formats.read_set("glue/STS-B", "dev"))["score"] == 4.75
    put(folder, "glue/RTE/dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tp\th\n")
    with pytest.raises(RegardError, match=r"dev\.tsv, line 2: 3 columns instead of 4"):
        list(formats.read_set("glue/RTE", "dev"))


def test_conll_sentences(folder: Path):
    start = "-DOCSTART- -X- -X- O\n\n"
    rows = f"{start}EU NNP B-NP B-ORG\nacts VBZ B-VP O\n\n\n{start}He PRP B-NP O"
    put(folder, "conll2003/valid.txt", rows)
    first, second = formats.read_set("conll2003", "valid")
    assert first["tokens"] == ["EU", "acts"]
    assert first["tags"] == ["B-ORG", "O"]
    assert (first["document"], second["document"], second["number"]) == (1, 2, 9)


def test_dialogue_turns(folder: Path):
    put(folder, "dailydialog/valid.txt.gz", "Hello ! __eou__ Hi . __eou__\n")
    assert next(formats.read_set("dailydialog", "valid"))["turns"] == ["Hello !", "Hi ."]


def test_dream_answer_is_an_index(folder: Path):
    item = '[[["M: Hi."], [{"question": "Who?", "choice": ["W", "M"], "answer": "M"}], "1-1"]]'
    put(folder, "dream/dev.json", item)
    record = next(formats.read_set("dream", "dev"))
    assert (record["dialogue"], record["choices"], record["answer"]) == (["M: Hi."], ["W", "M"], 1)


def test_summaries_as_two_columns(folder: Path):
    put(folder, "scitldr/dev.jsonl", '{"source": ["A.", "B."], "target": ["C."], "title": "T", "paper_id": "x"}\n')
    assert list(read_corpus(Corpus(set="scitldr:dev"))) == [TextRecord(1, ("A. B.", "C."))]
    with pytest.raises(RegardError, match="scitldr has no column abstract; known: id, source"):
        list(read_corpus(Corpus(set="scitldr:dev"), ["abstract"]))


def test_a_file_of_another_layout_is_a_sentence(folder: Path):
    put(folder, "squad-dev-split/valid.json", '{"version": "1.1"}')
    with pytest.raises(RegardError, match="not laid out as squad-dev-split is"):
        list(formats.read_set("squad-dev-split", "valid"))
    put(folder, "dream/train.json", "[")
    with pytest.raises(RegardError, match=r"train\.json: not valid JSON"):
        list(formats.read_set("dream", "train"))


def test_one_file_cut_in_train_and_valid(folder: Path):
    put(folder, "tinyshakespeare/input.txt", "".join(f"line {i:03}\n" for i in range(200)))
    train, valid = (list(formats.read_set("tinyshakespeare", split)) for split in ("train", "valid"))
    assert (len(train), len(valid)) == (180, 20)
    assert (train[-1]["number"], valid[0]["number"]) == (180, 181)
    assert len(list(formats.read_set("tinyshakespeare", "all"))) == 200


def test_embedded_corpus():
    english = [r.fields for r in formats.read_set_texts("embedded:test", ("source", "target"), ("en", "de"))]
    german = [r.fields for r in formats.read_set_texts("embedded:test", ("source", "target"), ("de", "en"))]
    assert len(english) > 100
    assert [f[::-1] for f in german] == english
    assert [p.name for p in catalog.set_files("embedded:test")] == ["embedded.tsv.bz2"]


COUNTS = {
    "multi30k": (29_000, 1_014),
    "tatoeba-en-de": (166_438, 1_673),
    "classical-modern-zh": (190_099, 1_875),
    "dailydialog": (11_017, 931),
    "glue/SST-2": (67_349, 872),
    "glue/CoLA": (8_551, 1_043),
    "glue/MRPC": (3_667, 408),
    "glue/RTE": (2_490, 277),
    "glue/STS-B": (5_749, 1_500),
    "conll2003": (14_041, 3_250),
    "squad-dev-split": (7_757, 1_531),
    "dream": (6_116, 2_040),
    "scitldr": (1_992, 619),
    "wikitext-2": (36_718, 3_760),
    "tatoeba-en-zh": (28_077, 556),
}


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA is not set")
@pytest.mark.parametrize("name", [name for name in DATASETS if name != "embedded"])
def test_every_set_of_the_data_folder(name: str):
    entry = DATASETS[name]
    if not (Path(os.environ["REGARD_DATA"]) / name).is_dir():
        pytest.skip(f"REGARD_DATA does not hold {name}")
    found = {split: sum(1 for _ in formats.read_set(name, split)) for split in entry.splits}
    assert all(found.values())
    if name in COUNTS:
        assert (found["train"], found["valid"]) == COUNTS[name]
