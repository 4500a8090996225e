"""Running text as documents: what each form keeps, and how much text there is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import documents as module
from regard.data.config import Corpus
from regard.data.documents import TextSize, iter_documents, split_documents
from regard.data.readers import TextRecord, corpus_files
from regard.errors import RegardError

LINES = ["one two", "three", "", "  ", "four", "", "five six", "seven"]


def records(lines: list[str]) -> Iterator[TextRecord]:
    return (TextRecord(n, (line,)) for n, line in enumerate(lines, 1))


@pytest.mark.parametrize(
    "form, expected",
    [
        ("line", [(n, f"{line}\n") for n, line in enumerate(LINES, 1)]),  # empty ones are dropped, and counted, later
        ("blank", [(1, "one two\nthree\n"), (5, "four\n"), (7, "five six\nseven\n")]),
        ("file", [(1, "".join(f"{line}\n" for line in LINES))]),
    ],
)
def test_forms(form: str, expected: list[tuple[int, str]]) -> None:
    assert [(r.number, r.fields[0]) for r in split_documents(records(LINES), form)] == expected


def test_an_endless_document_is_cut_at_the_end_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)
    found = [r.fields[0] for r in split_documents(records(LINES), "file")]
    assert len(found) > 1
    assert "".join(found) == "".join(f"{line}\n" for line in LINES)
    assert all(len(text) <= 10 + 10 for text in found)


@given(st.lists(st.text(alphabet="ab \tü", max_size=9), min_size=1))
def test_extent_counts_words_and_ends_of_lines(lines: list[str]) -> None:
    extent = TextSize.count([r.fields[0] for r in split_documents(records(lines), "file")])
    assert extent.words == sum(len(line.split()) + 1 for line in lines)
    assert extent.characters == sum(len(line) + 1 for line in lines)


def test_articles_begin_at_their_titles() -> None:
    lines = ["", " = One = ", "", "a .", " = = Part = = ", "", "x = 1 = y", " = b = ", "", " = Two = ", "b ."]
    found = list(split_documents(records(lines), "article"))
    assert [r.fields[0].split("\n")[0] for r in found] == [" = One = ", " = Two = "]
    assert found[0].fields[0].endswith("x = 1 = y\n = b = \n")
    assert [r.number for r in found] == [2, 10]


def test_a_folder_is_its_text_files_and_no_document_goes_on_in_another(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in (
        ("b.txt", "two\n\nthree\n"),
        ("a.txt", "one\nmore\n"),
        ("sub/c.txt", "four\n"),
        ("d.md", "no\n"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    corpus = Corpus(path=str(tmp_path))
    for form, expected in (
        ("blank", ["one\nmore\n", "two\n", "three\n", "four\n"]),
        ("file", ["one\nmore\n", "two\n\nthree\n", "four\n"]),
    ):
        assert [r.fields[0] for r in iter_documents(corpus, form)] == expected
    assert [path.name for path in corpus_files(corpus)] == ["a.txt", "b.txt", "c.txt"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RegardError, match=r"empty: there is no \.txt file in this folder"):
        corpus_files(Corpus(path=str(tmp_path / "empty")))
