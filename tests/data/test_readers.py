import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from regard.data.config import Corpus
from regard.data.readers import TextRecord, misaligned_line, read_corpus, read_lines
from regard.errors import RegardError


def write(path: Path, data: bytes | str) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def parallel(folder: Path, source: bytes | str, target: bytes | str) -> Corpus:
    return Corpus(source=write(folder / "a.en", source), target=write(folder / "a.de", target))


def test_parallel_files(tmp_path: Path):
    records = list(read_corpus(parallel(tmp_path, "one\ntwo\n", "eins\nzwei")))
    assert records == [TextRecord(1, ("one", "eins")), TextRecord(2, ("two", "zwei"))]


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path: Path):
    corpus = parallel(tmp_path, gzip.compress(b"one\n"), "eins\n")
    assert list(read_corpus(corpus)) == [TextRecord(1, ("one", "eins"))]
    plain = Corpus(path=write(tmp_path / "misnamed.tsv.gz", "a\tb\n"))
    assert list(read_corpus(plain)) == [TextRecord(1, ("a", "b"))]


def test_only_newline_ends_a_line(tmp_path: Path):
    odd = "a\u2028b\x85c\x0bd\x0ce\x1cf\rg"
    assert list(read_lines(Path(write(tmp_path / "x", odd + "\nnext\n")))) == [odd, "next"]


def test_bom_crlf_nul(tmp_path: Path):
    counts: Counter[str] = Counter()
    corpus = parallel(tmp_path, b"\xef\xbb\xbfone\r\nt\0wo\r\n", "eins\r\n\ufeffzwei\r\n")
    assert [r.fields for r in read_corpus(corpus, counts=counts)] == [("one", "eins"), ("t wo", "\ufeffzwei")]
    assert counts["nul"] == 1


def test_invalid_utf8_names_file_and_line(tmp_path: Path):
    corpus = parallel(tmp_path, b"fine\nna\xefve\n", "gut\nnaiv\n")
    with pytest.raises(RegardError, match=r"a\.en, line 2: not valid UTF-8 \(byte 0xef at column 3\)"):
        list(read_corpus(corpus))


def test_utf16_is_named(tmp_path: Path):
    with pytest.raises(RegardError, match="UTF-16"):
        list(read_lines(Path(write(tmp_path / "x", "hello\n".encode("utf-16")))))


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_file(tmp_path: Path, content: bytes):
    with pytest.raises(RegardError, match=r"a\.de: the file is empty"):
        list(read_corpus(parallel(tmp_path, "one\n", content)))


def test_an_empty_line_is_not_an_empty_file(tmp_path: Path):
    assert list(read_lines(Path(write(tmp_path / "x", "\n")))) == [""]


@pytest.mark.parametrize("cut", [5, 12, 60, -9, -1])
def test_truncated_gzip(tmp_path: Path, cut: int):
    rng = np.random.default_rng(0)
    packed = gzip.compress(bytes(rng.integers(97, 123, 5000, dtype=np.uint8)) + b"\n")
    path = Path(write(tmp_path / "x.gz", packed[:cut]))
    with pytest.raises(RegardError, match=r"x\.gz: the gzip data ends too early"):
        list(read_lines(path))


def test_damaged_gzip(tmp_path: Path):
    packed = bytearray(gzip.compress(b"some text to pack\n" * 50))
    packed[-6] ^= 0xFF  # the checksum
    with pytest.raises(RegardError, match="damaged"):
        list(read_lines(Path(write(tmp_path / "x.gz", bytes(packed)))))


def test_missing_file_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(RegardError, match=r"nowhere\.tsv: there is no such file .*elsewhere"):
        read_corpus(Corpus(path="nowhere.tsv"))


def test_found_under_regard_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "a.tsv", "x\ty\n")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert list(read_corpus(Corpus(path="a.tsv"))) == [TextRecord(1, ("x", "y"))]


def test_a_folder_is_not_a_file(tmp_path: Path):
    with pytest.raises(RegardError, match="is a folder"):
        read_corpus(Corpus(path=str(tmp_path)))


def test_very_long_line(tmp_path: Path):
    long = "word " * 20_000
    assert [r.fields[0] for r in read_corpus(parallel(tmp_path, f"{long}\nb\n", "a\nb\n"))] == [long, "b"]


def test_endless_line_is_refused(tmp_path: Path):
    path = Path(write(tmp_path / "x", b"a\n" + b"x" * (1 << 21)))
    with pytest.raises(RegardError, match="line 2: a line of 1,048,576 bytes or more; cut it"):
        list(read_lines(path, longest=1 << 20))
    assert len(list(read_lines(path))) == 2


def sentences(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 120, n)
    return ["x" * k for k in sizes], ["y" * int(k * rng.uniform(0.9, 1.3)) for k in sizes]


@pytest.mark.parametrize("lost", [150, 500, 930])
def test_different_line_counts(tmp_path: Path, lost: int):
    source, target = sentences(1000)
    del target[lost - 1]
    corpus = parallel(tmp_path, "\n".join(source), "\n".join(target))
    with pytest.raises(RegardError, match=r"a\.en has 1000 lines and .*a\.de has 999") as raised:
        list(read_corpus(corpus))
    told = int(str(raised.value).rsplit("line ", 1)[1])
    assert abs(told - lost) <= 5


def test_line_counts_when_only_the_end_is_missing(tmp_path: Path):
    source, target = sentences(500)
    corpus = parallel(tmp_path, "\n".join(source[:490]), "\n".join(target))
    with pytest.raises(RegardError, match=r"490 lines and .* 500: they look alike up to line 490"):
        list(read_corpus(corpus))


def test_an_empty_line_on_one_side_is_suspicious():
    a = np.array([30, 31, 0, 35, 32])
    b = np.array([30, 30, 33, 34])
    assert misaligned_line(a, b) == 3
    assert misaligned_line(np.array([5]), np.array([5, 6])) is None


def test_tsv_columns_by_number_and_by_name(tmp_path: Path):
    path = write(tmp_path / "a.tsv", 'id\ten\tde\n1\t"Hi\tHallo\n')
    assert list(read_corpus(Corpus(path=path, columns=[3, 2])))[1].fields == ("Hallo", '"Hi')
    assert list(read_corpus(Corpus(path=path, columns=["en", "de"]))) == [TextRecord(2, ('"Hi', "Hallo"))]
    with pytest.raises(RegardError, match="no column dee; did you mean de"):
        list(read_corpus(Corpus(path=path, columns=["en", "dee"])))


def test_tsv_with_too_few_columns(tmp_path: Path):
    path = write(tmp_path / "a.tsv", "a\tb\nonly\n")
    with pytest.raises(RegardError, match=r"a\.tsv, line 2: 1 columns, but column 2"):
        list(read_corpus(Corpus(path=path)))
    with pytest.raises(RegardError, match="3 columns are given, but this task reads source, target"):
        read_corpus(Corpus(path=path, columns=[1, 2, 3]))


def test_blank_tsv_line_is_an_empty_record(tmp_path: Path):
    assert list(read_corpus(Corpus(path=write(tmp_path / "a.tsv", "a\tb\n\n"))))[1] == TextRecord(2, ("", ""))


def test_jsonl(tmp_path: Path):
    rows = [{"source": "a\nb", "target": "c"}, {"source": "d\0", "target": "e"}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    counts: Counter[str] = Counter()
    assert [r.fields for r in read_corpus(Corpus(path=path), counts=counts)] == [("a\nb", "c"), ("d ", "e"), ("", "")]
    assert counts["nul"] == 1


def test_jsonl_nested_keys(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", '{"translation": {"en": "a", "de": "b"}}')
    assert next(read_corpus(Corpus(path=path, columns=["translation.de", "translation.en"]))).fields == ("b", "a")


@pytest.mark.parametrize(
    "line, said",
    [
        ("{not json", r"a\.jsonl, line 2: not valid JSON"),
        ("[1]", "line 2: not a JSON object"),
        ('{"sorce": "a", "target": "b"}', "line 2: there is no key source; did you mean sorce"),
        ('{"source": 3, "target": "b"}', "line 2: source must be text, not int"),
        ('{"source": "\\ud800", "target": "b"}', "line 2: source holds half a character"),
    ],
)
def test_bad_jsonl(tmp_path: Path, line: str, said: str):
    path = write(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n' + line)
    with pytest.raises(RegardError, match=said):
        list(read_corpus(Corpus(path=path)))


def test_one_column(tmp_path: Path):
    path = write(tmp_path / "a.txt", "one\ttab\ntwo\n")
    assert [r.fields for r in read_corpus(Corpus(path=path), ["text"])] == [("one\ttab",), ("two",)]
    with pytest.raises(RegardError, match="two parallel files, but this task reads one text"):
        read_corpus(parallel(tmp_path, "a\n", "b\n"), ["text"])
