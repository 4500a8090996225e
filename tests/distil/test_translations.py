"""A teacher's translations: chunks that are kept, what is left out and counted, and texts that teach nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from regard.data.config import Corpus
from regard.distil.translations import (
    TranslatedRow,
    TranslationChoices,
    check_known,
    read_sources,
    translate_in_chunks,
    write_filtered,
)
from regard.errors import RegardError
from regard.predict.translation import Translator

LANGUAGES = ("en", "de")


@pytest.fixture(scope="module")
def teacher(toy_run: Path) -> Translator:
    return regard.load(toy_run, "cpu")


def quiet(what: str, done: int, of: int) -> None:
    """Progress that nobody sees."""


def test_sources_that_differ_come_longest_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("w1 w2\n\nw3\nw1 w2\n w4\tw5 w6 \n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("w3\tX\nw7 w8 w9\tY\n", encoding="utf-8")
    corpora = [Corpus(path=str(tmp_path / name)) for name in ("a.txt", "b.tsv")]
    assert read_sources(corpora, LANGUAGES) == ["w4 w5 w6", "w7 w8 w9", "w1 w2", "w3"]
    (tmp_path / "a.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"a\.txt: no lines to translate"):
        read_sources(corpora[:1], LANGUAGES)


def test_chunks_hold_what_the_teacher_says(teacher: Translator, tmp_path: Path) -> None:
    lines = ["w1 w2 w3", "w4 w5", "w9 w9 w9 w9", "w2"]
    choices = TranslationChoices(chunk=3, beam=2, nbest=2)
    paths = translate_in_chunks(teacher, lines, tmp_path / "chunks", choices, quiet)
    assert [path.name for path in paths] == ["000000.tsv", "000001.tsv"]
    rows = [TranslatedRow.parse(line) for path in paths for line in path.read_text().splitlines()]
    for line in lines:
        best = teacher.nbest([line], 2, beam=2)[0]
        mine = [row for row in rows if row.source == line and row.target]
        assert [row.target for row in mine] == [each.text for each in best if each.text]
        for row, each in zip(mine, [each for each in best if each.text], strict=True):
            assert row.score == pytest.approx(each.log_probability / row.target_pieces, abs=1e-4)
            assert (row.source_pieces, row.target_pieces) == (len(line.split()) + 1, len(each.tokens) + 1)


def test_a_chunk_that_is_there_is_not_made_again(teacher: Translator, tmp_path: Path) -> None:
    lines, choices = ["w1 w2 w3", "w4 w5", "w9 w9"], TranslationChoices(chunk=1)
    translate_in_chunks(teacher, lines, tmp_path, choices, quiet)
    kept = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())}
    gone = sorted(tmp_path.iterdir())[1]
    whole = gone.read_text()
    gone.unlink()
    (tmp_path / ".000001.tsv.99").write_text("half", encoding="utf-8")  # of a process that was killed
    reported = []
    translate_in_chunks(teacher, lines, tmp_path, choices, lambda what, done, of: reported.append((done, of)))
    assert reported == [(1, 3), (2, 3), (3, 3)]
    assert gone.read_text() == whole
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir()) if path != gone} == {
        path: time for path, time in kept.items() if path != gone
    }


def rows() -> Iterator[TranslatedRow]:
    for n in range(20):
        yield TranslatedRow(f"good {n}", f"gut {n}", -0.1 * n, 4, 5)
    yield TranslatedRow("short", "viel zu lang", -0.1, 2, 9)
    yield TranslatedRow("?", "", reason="unknown")
    yield TranslatedRow("long", "", reason="too_long")


def test_what_is_bad_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "0.tsv").write_text("".join(row.line() for row in rows()), encoding="utf-8")
    counts = write_filtered([tmp_path / "0.tsv"], tmp_path / "out.tsv", TranslationChoices(worst=0.1))
    assert counts == {"kept": 18, "unlikely": 2, "ratio": 1, "unknown": 1, "too_long": 1}
    pairs = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert pairs == [f"good {n}\tgut {n}" for n in range(18)]
    everything = TranslationChoices(worst=0, max_ratio=0)
    assert write_filtered([tmp_path / "0.tsv"], tmp_path / "out.tsv", everything)["kept"] == 21


def test_nothing_left_and_damage_are_sentences(tmp_path: Path) -> None:
    path = tmp_path / "0.tsv"
    path.write_text(TranslatedRow("?", "", reason="unknown").line(), encoding="utf-8")
    with pytest.raises(RegardError, match=r"no translation is left to learn from: 1 mostly unknown to the teacher"):
        write_filtered([path], tmp_path / "out.tsv", TranslationChoices())
    path.write_text("half a li", encoding="utf-8")
    with pytest.raises(RegardError, match=r"0\.tsv: damaged; remove it"):
        write_filtered([path], tmp_path / "out.tsv", TranslationChoices())


def test_a_text_of_another_language_is_warned_of(teacher: Translator, tmp_path: Path) -> None:
    said: list[str] = []
    check_known(["w1 w2", "w3"], teacher, said.append)
    assert said == []
    lines = ["天气很好。", "我们都喜欢读书。", "w1"]
    check_known(lines, teacher, said.append)
    assert len(said) == 1
    assert said[0].startswith("67% of the lines are mostly unknown to the teacher's vocabulary, and are left out")
    paths = translate_in_chunks(teacher, lines, tmp_path, TranslationChoices(), quiet)
    assert [TranslatedRow.parse(line).reason for line in paths[0].read_text().splitlines()][:2] == ["unknown"] * 2


@pytest.mark.parametrize(
    ("keys", "why"),
    [({"worst": 1.0}, "worst must be"), ({"max_ratio": 0.5}, "max_ratio must be"), ({"nbest": 0}, "nbest must be at")],
)
def test_choices_that_make_no_sense(keys: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TranslationChoices(**keys)  # type: ignore[arg-type]
