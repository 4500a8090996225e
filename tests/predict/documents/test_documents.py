"""Documents: what is not prose stays byte for byte, lines keep their number, and prose is found across lines."""

import io
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.errors import RegardError
from regard.examples.long_text import Shortened
from regard.predict.documents import pieces as reading
from regard.predict.documents import translate as documents
from regard.predict.documents.pieces import read_pieces
from regard.predict.documents.prose import Languages
from regard.predict.documents.translate import FORMS, DocumentCounts, DocumentOptions, DocumentTranslator, Translated

ROOT = Path(__file__).parents[3]
ENGLISH = Languages(True, True)


class Told(list[str]):
    """What a translator was given."""

    def same(self, texts: list[str], before: int) -> list[Translated]:
        self.extend(texts)
        return [Translated(text, None) for text in texts]

    @staticmethod
    def forget(texts: list[str], before: int) -> list[Translated]:
        return [Translated(text, None) for text in texts]

    def upper(self, texts: list[str], before: int) -> list[Translated]:
        self.extend(texts)
        return [Translated(text.upper(), None) for text in texts]


def translated(data: bytes, form: str, translate, languages: Languages = ENGLISH, **options) -> tuple[bytes, list[str]]:
    warnings: list[str] = []
    blocks = FORMS[form](read_pieces(io.BytesIO(data), "doc"), warnings.append, "doc")
    worker = DocumentTranslator(translate, DocumentOptions(form, **options), languages, DocumentCounts())
    return "".join(worker.windows(blocks)).encode(), warnings


def upper(text: str, form: str = "markdown", **options) -> str:
    return translated(text.encode(), form, Told().upper, **options)[0].decode()


# --- nothing is changed that is no prose ----------------------------------------------------------------------------

PARTS = [
    "word", "Two words.", "a b", "`code x`", "``a`b``", "[label text](http://x.y/z)", "![alt](a.png)",
    "**bold words**", "*em*", "_em_", "<b>", "</b>", "<!-- c -->", "http://a.b/c", "&amp;", "\\*", "$x+y$", "|", "---",
    "===", "```",
    "~~~", "    ", "\t", "- ", "1. ", "> ", "# ", "## ", "\n", "\n\n", "\r\n", "  \n", "\\\n", "[ref]: x", "[^1]",
    "[^1]: ", "[x] ", "{#id}", "| a | b |\n|---|---|\n| c | d | e |\n| f\n", "$$", "<div>", "X1", "X2 ", "\U000f0001",
    "!", "?", "。",
    "，", "我", "。你", "é", "\x00", "\r", "\u2028", "`", "[", "]", "*", "_", "<", ">", ":::", "+++", "\ufeff",
]  # fmt: skip
markdown = st.lists(st.sampled_from(PARTS), max_size=25).map("".join)
forms, ways = st.sampled_from(["markdown", "text"]), st.sampled_from(["sentence", "paragraph"])


@settings(max_examples=400)
@given(markdown, forms, ways)
def test_an_identity_translator_changes_no_byte(text: str, form: str, by: str) -> None:
    assert translated(text.encode(), form, Told().same, by=by)[0] == text.encode()


@settings(max_examples=200)
@given(markdown, forms, st.sampled_from(["", "x", "many more words than there were before", "一二三。四五六"]))
def test_lines_keep_their_number_whatever_comes_back(text: str, form: str, output: str) -> None:
    for languages in (ENGLISH, Languages(True, False), Languages(False, True), Languages(False, False)):
        given_back = translated(
            text.encode(), form, lambda texts, before: [Translated(output, None) for _ in texts], languages
        )[0]
        assert given_back.count(b"\n") == text.count("\n")


@pytest.mark.parametrize("folder, languages", [("docs", ENGLISH), ("docs/zh", Languages(False, False))])
@pytest.mark.parametrize("form", ["markdown", "text"])
def test_our_own_docs_come_back_as_they_are(folder: str, languages: Languages, form: str) -> None:
    for path in sorted((ROOT / folder).glob("*.md")):
        data = path.read_bytes()
        assert translated(data, form, Told().same, languages)[0] == data, path.name


def test_code_links_and_html_of_our_own_docs_stay() -> None:
    """Every fence, code span, target of a link and row of a table is there again, in its order."""
    fence = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    kept = [r"(?<!`)`[^`]+`(?!`)", r"\]\([^)\n]+\)", r"^\|[-|: ]+\|$"]
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        outcome = upper(text)
        assert outcome != text
        assert fence.findall(outcome) == fence.findall(text)
        for pattern in kept:
            found = re.findall(pattern, fence.sub("", outcome), re.MULTILINE)
            assert found == re.findall(pattern, fence.sub("", text), re.MULTILINE), f"{path.name}: {pattern}"


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("---\ntitle: a b\n---\nA b.\n", "---\ntitle: a b\n---\nA B.\n"),
        ("---\n\nA b.\n", "---\n\nA B.\n"),  # a rule, no front matter
        ("# Head *it* {#a}\n", "# HEAD *IT* {#a}\n"),
        ("Head\n====\nText\n", "HEAD\n====\nTEXT\n"),
        ("a `b c` d [e f](g.md 'h') i\n", "A `b c` D [E F](g.md 'h') I\n"),
        ("![a b](c.png) d <br> e &amp; f\n", "![A B](c.png) D <br> E &amp; F\n"),
        ("a [b]\n\n[b]: c d\n", "A [b]\n\n[b]: c d\n"),
        ("- a\n  b\n  - [ ] c\n\n    d\n", "- A\n  B\n  - [ ] C\n\n    D\n"),
        ("1. a\n\n       code in it\n", "1. A\n\n       code in it\n"),
        ("a\n\n    code\n\nb\n", "A\n\n    code\n\nB\n"),
        ("> a\n> b\nc\n", "> A\n> B\nC\n"),
        ("> ```\n> code\n> ```\n> a\n", "> ```\n> code\n> ```\n> A\n"),
        ("<div>\na\n</div>\n\nb\n", "<div>\na\n</div>\n\nB\n"),
        ("<!-- a\n\nb -->\nc\n", "<!-- a\n\nb -->\nC\n"),
        ("$$\na\n\nb\n$$\nc $d_e$ f\n", "$$\na\n\nb\n$$\nC $d_e$ F\n"),
        ("|a b|c|\n|:-|-|\n|d|`e`|f|\n|g \\| h\n\ni\n", "|A B|C|\n|:-|-|\n|D|`e`|F|\n|G \\| H\n\nI\n"),
        ("a[^1] b\n\n[^1]: c\n", "A[^1] B\n\n[^1]: C\n"),
        ("a  \nb\\\nc\n", "A  \nB\\\nC\n"),
        ("see https://a.b/c?d=e or <f@g.h>\r\n", "SEE https://a.b/c?d=e OR <f@g.h>\r\n"),
        ("::: note\na\n:::\n", "::: note\nA\n:::\n"),
        ("12 3.4 --\n", "12 3.4 --\n"),
        ("", ""),
    ],
)
def test_what_is_prose_in_markdown(text: str, wanted: str) -> None:
    assert upper(text) == wanted


def test_what_is_never_closed_is_kept_and_said() -> None:
    for begin in ("```python", "~~~", "<!-- x", "$$"):
        text = f"a b\n\n{begin}\nc d\n\ne\n"
        outcome, warnings = translated(text.encode(), "markdown", Told().upper)
        assert outcome.decode() == text.replace("a b", "A B")
        said = "doc, line 3: the block that begins here is never closed; all after it is kept as it is"
        assert warnings == [said]


# --- sentences ------------------------------------------------------------------------------------------------------


def test_sentences_are_found_across_lines() -> None:
    told = Told()
    text = "The first sentence goes\non here. The second `x y` is\nhere.\n"
    assert translated(text.encode(), "markdown", told.same)[0] == text.encode()
    assert told == ["The first sentence goes on here.", "The second X1 is here."]
    told.clear()
    translated(text.encode(), "markdown", told.same, by="paragraph")
    assert told == ["The first sentence goes on here. The second X1 is here."]


def test_in_plain_text_a_line_goes_on_where_the_next_word_would_not_fit() -> None:
    told = Told()
    text = "A title\nThis line is as long as lines are\nhere. It goes on in the next, and\nends.\n\nAnother\n"
    assert translated(text.encode(), "text", told.same)[0] == text.encode()
    assert told == [
        "A title", "This line is as long as lines are here.", "It goes on in the next, and ends.", "Another",
    ]  # fmt: skip


def test_what_a_model_loses_is_kept_by_parts() -> None:
    def forgetful(texts: list[str], before: int) -> list[Translated]:
        return [Translated(re.sub(r" X\d+\b", "", text).upper(), None) for text in texts]

    counts = DocumentCounts()
    worker = DocumentTranslator(forgetful, DocumentOptions("markdown"), ENGLISH, counts)
    blocks = FORMS["markdown"](read_pieces(io.BytesIO(b"a `b` c [d](e) far. X1 `g` h.\n"), "doc"), print, "doc")
    assert "".join(worker.windows(blocks)) == "A `b` C [D](e) FAR. X1 `g` H.\n"
    assert counts.in_parts == 2


def test_a_full_stop_is_not_added_to_what_is_no_sentence() -> None:
    dot = lambda texts, before: [Translated(f"{text.rstrip('.')}.", None) for text in texts]  # noqa: E731
    assert translated(b"# A b\n\nC d. E\n", "markdown", dot)[0] == b"# A b\n\nC d. E\n"


def test_languages_without_spaces() -> None:
    told = Told()
    text = "我爱你，\n你呢？好。\n"
    assert translated(text.encode(), "markdown", told.same, Languages(False, False))[0] == text.encode()
    assert told == ["我爱你，你呢？", "好。"]
    english = lambda texts, before: [Translated("Some words", None) for _ in texts]  # noqa: E731
    assert translated(text.encode(), "markdown", english, Languages(False, True))[0] == b"Some words\nSome words\n"
    chinese = lambda texts, before: [Translated("一二三，四五六。", None) for _ in texts]  # noqa: E731
    outcome = translated(b"One two three\nfour. Five six.\n", "markdown", chinese, Languages(True, False))[0]
    assert outcome.decode() == "一二三，四五六。\n一二三，四五六。\n"


def test_sentences_before_are_context_as_far_as_they_fit() -> None:
    told = Told()
    options = DocumentOptions("text", context=2, separator="|")
    counts = DocumentCounts()
    worker = DocumentTranslator(told.same, options, ENGLISH, counts, lambda text: len(text) < 16)
    blocks = FORMS["text"](read_pieces(io.BytesIO(b"A one. B two.\n\nC three. D four.\n"), "doc"), print, "doc")
    assert "".join(worker.windows(blocks)) == "A one. B two.\n\nC three. D four.\n"
    assert told == ["A one.", "A one. | B two.", "C three.", "D four."]
    assert counts.history == ["C three.", "D four."]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"form": "html"}, "form is 'html'; write text or markdown"),
        ({"by": "word"}, "by is 'word'; write sentence or paragraph"),
        ({"context": -1}, "context must be 0 or more sentences, not -1"),
        ({"context": 1, "separator": " "}, "context needs a separator"),
    ],
)
def test_options_that_are_not_there(options: dict, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        DocumentOptions(**options)


# --- size -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.text("ab .。é\n", max_size=400), st.integers(8, 40))
def test_pieces_are_the_file(text: str, window: int) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(reading, "WINDOW", window)
    found = list(read_pieces(io.BytesIO(text.encode()), "doc"))
    patch.undo()
    assert "".join(piece.text + piece.end for piece in found) == text
    assert all(len(piece.text.encode()) <= 2 * window for piece in found)
    assert [piece.number for piece in found if piece.begins] == sorted({piece.number for piece in found})


class Endless(io.RawIOBase):
    """So many bytes of one line, or of lines, which are never in memory together."""

    def __init__(self, sentence: bytes, size: int) -> None:
        self.sentence, self.left = sentence, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = (self.sentence * (len(buffer) // len(self.sentence) + 1))[: min(len(buffer), self.left)]
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)


@pytest.mark.parametrize("sentence", [b"One two. ", b"| One | two\n", b"ab\n\n", b"x"], ids=str)
def test_memory_is_bounded_by_the_window(sentence: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one line that is many windows long, or of as many lines: later windows need no more than the first."""
    monkeypatch.setattr(reading, "WINDOW", 1 << 8)
    monkeypatch.setattr(documents, "WINDOW_CHARACTERS", 1 << 9)
    file = io.BufferedReader(Endless(sentence, 20_000), 1 << 8)
    worker = DocumentTranslator(Told().forget, DocumentOptions("markdown"), ENGLISH, DocumentCounts())
    peaks, written = list[int](), 0
    tracemalloc.start()
    for text in worker.windows(FORMS["markdown"](read_pieces(file, "doc"), print, "doc")):
        written += len(text)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
    tracemalloc.stop()
    assert written == 20_000
    assert len(peaks) > 12
    assert max(peaks[10:]) < 1.5 * max(peaks[:10])


# --- a trained model ------------------------------------------------------------------------------------------------


def test_a_trained_model_and_long_sentences(toy_run: Path) -> None:
    model = regard.load(toy_run, "cpu")
    outcome = documents.translate_document(model, "w1 w2.\n\n```\nw3\n```\n", DocumentOptions("markdown"))
    assert outcome == model.translate(["w1 w2."])[0] + "\n\n```\nw3\n```\n"
    counts = DocumentCounts()
    counts.add(Shortened("extract", 10, 4))
    counts.add(Shortened("segments", 20, 0, 2))
    assert (counts.long, counts.tokens, counts.dropped) == (2, 30, 4)
