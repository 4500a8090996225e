"""CoNLL-U: trees against walks from head to head, every bad file by its line, and rows that stay beside their heads."""

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import text
from regard.data.annotations import check_tree, check_word_count, read_conllu, tree_positions, with_trees
from regard.data.config import Corpus, Filters
from regard.data.prepared import prepare_corpora
from regard.data.readers import TextRecord
from regard.errors import RegardError
from regard.text.config import Bpe, Word
from regard.text.tokenizer import Tokenizer


def block(heads: Sequence[int | str]) -> str:
    """A sentence as a parser writes it."""
    return "".join(f"{n}\tw{n}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for n, head in enumerate(heads, 1)) + "\n"


def write(folder: Path, content: str, name: str = "heads.conllu") -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


# --- reading -----------------------------------------------------------------------------------------------------

UD = """# sent_id = 1
# text = Don't walk
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_
3\twalk\twalk\tVERB\t_\t_\t0\troot\t_\t_
3.1\tyou\tyou\tPRON\t_\t_\t_\t_\t3:nsubj\t_

# text = Yes
1\tYes\tyes\tINTJ\t_\t_\t0\troot\t_\t_
"""


def test_ranges_empty_nodes_and_comments_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, UD)
    assert list(read_conllu(path)) == [(3, [3, 3, 0]), (10, [0])]  # the lines where their words begin
    packed = tmp_path / "heads.conllu.gz"
    packed.write_bytes(gzip.compress(UD.replace("\n", "\r\n").encode()))
    assert list(read_conllu(packed)) == list(read_conllu(path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (block([0]) + block([2, 5, 0]), "line 4: the head 5 is outside its sentence of 3 words"),
        (block([-1, 0]), "line 1: the head -1 is outside"),
        (block([0, 3, 2]), "line 2: the heads above word 2 go round in a circle"),
        (block([2, 0, 3]), "line 3: the heads above word 3 go round in a circle"),
        (block([2, 1]), "line 1: the sentence has no root"),
        (block([0, 1, 0]), "line 3: a second root: words 1 and 3"),
        (block([0, "_"]), "line 2: the head is '_', not a number"),
        (block([0, "9" * 5000]), "line 2: the head is '999"),
        ("# a comment\n1\tword\t_\n", "line 2: 3 columns; CoNLL-U has 10"),
        ("one word\n", "line 1: 1 column; CoNLL-U has 10"),
        (block([0]).rstrip("\n") + "\n" + block([0]), "line 2: the word's number is '1', not 2"),
        (block([0, 1]).replace("2\tw2", "x\tw2"), "line 2: the word's number is 'x', not 2"),
        ("1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_\n", "line 1: a sentence without a word"),
        ("", "the file is empty"),
    ],
)
def test_bad_files_name_the_line(tmp_path: Path, content: str, says: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(RegardError) as raised:
        list(read_conllu(path))
    assert str(raised.value).startswith(str(path))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


# --- trees -------------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Heads of any tree: words hang below earlier ones of a random order."""
    order = draw(st.permutations(range(1, draw(st.integers(1, 12)) + 1)))
    heads = [0] * len(order)
    for n, word in enumerate(order[1:], 1):
        heads[word - 1] = order[draw(st.integers(0, n - 1))]
    return heads


def chain(heads: list[int], word: int) -> list[int]:
    """The word and all above it."""
    found = [word]
    while heads[found[-1] - 1]:
        found.append(heads[found[-1] - 1])
    return found


@given(trees())
def test_places_by_walking_up(heads: list[int]) -> None:
    check_tree(heads, ["here"] * len(heads))
    depth, enter, leave = tree_positions(heads)
    for i in range(1, len(heads) + 1):
        assert depth[i - 1] == len(chain(heads, i)) - 1
        for j in range(1, len(heads) + 1):
            above = enter[i - 1] <= enter[j - 1] < leave[i - 1]
            assert above == (i in chain(heads, j))
    assert depth[-1] == depth[:-1].max() + 1  # the end of the sentence: deepest, and on nobody's path
    assert not ((enter[:-1] <= enter[-1]) & (enter[-1] < leave[:-1])).any()
    assert not ((enter[-1] <= enter[:-1]) & (enter[:-1] < leave[-1])).any()


def test_a_very_deep_tree_is_no_trouble() -> None:
    depth, _, leave = tree_positions(list(range(20_000)))
    np.testing.assert_array_equal(depth, np.arange(20_001))
    assert (leave[:-1] == 20_001).all()


# --- beside the text ---------------------------------------------------------------------------------------------


def test_empty_lines_have_no_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, block([0]) + "\n" + block([2, 0]))
    records = [TextRecord(n, (line,)) for n, line in enumerate(["", "a", "  ", "b c", ""], 1)]
    assert [r.parents for r in with_trees(iter(records), str(path), "text")] == [[], [0], [], [2, 0], []]


def test_too_few_and_too_many_sentences(tmp_path: Path) -> None:
    path = write(tmp_path, block([0]) + block([2, 0]))
    records = [TextRecord(n, (line,)) for n, line in enumerate(["a", "", "b c", "d"], 1)]
    with pytest.raises(RegardError, match=r"heads.conllu: the file ends before line 4 of text, which has no sentence"):
        list(with_trees(iter(records), str(path), "text"))
    with pytest.raises(RegardError, match=r"heads.conllu, line 3: a sentence too many: text has no line left for it"):
        list(with_trees(iter(records[:2]), str(path), "text"))


def test_words_and_heads_must_be_as_many() -> None:
    check_word_count([0, 0, 1, 2, 2], [2, 0, 2], "line 1")
    for words in ([0, 1], [0, 1, 2, 3], []):
        with pytest.raises(
            RegardError, match=rf"line 7: {max(words, default=-1) + 1} words? in the text, but heads for 3"
        ):
            check_word_count(words, [2, 0, 2], "line 7")


# --- the prepared form -------------------------------------------------------------------------------------------

ROWS = [  # source, target, heads
    ("low new", "a b", [2, 0]),
    ("", "x", None),
    ("lower newest low", "c d", [0, 1, 2]),
    ("low new", "a b", [2, 0]),  # a duplicate
    ("new", "", [0]),  # an empty target
    ("newest newest lowest new low", "e", [3, 3, 0, 3, 4]),
]


def corpus(folder: Path, rows: Sequence[tuple[str, str, list[int] | None]] = ROWS, name: str = "train") -> Corpus:
    for side, suffix in enumerate(("en", "de")):
        write(folder, "".join(f"{row[side]}\n" for row in rows), f"{name}.{suffix}")
    heads = write(folder, "".join(block(row[2]) for row in rows if row[2] is not None), f"{name}.conllu")
    return Corpus(source=str(folder / f"{name}.en"), target=str(folder / f"{name}.de"), heads=str(heads))


def tokenizer(config: Word | Bpe) -> Tokenizer:
    return text.train_tokenizer(config, [row[0] for row in ROWS] * 9, "en")


@pytest.mark.parametrize("config", [Word(), Bpe(size=16)], ids=["word", "bpe"])
def test_heads_stay_beside_their_rows(tmp_path: Path, config: Word | Bpe) -> None:
    learned = tokenizer(config)
    prepared = prepare_corpora(
        [corpus(tmp_path)], {"source": learned, "target": learned}, Filters(), tmp_path / "cache"
    )
    assert prepared.number.tolist() == [1, 3, 6]
    assert [row.tolist() for row in prepared.annotations["heads"]] == [[2, 0], [0, 1, 2], [3, 3, 0, 3, 4]]


def test_rows_that_are_cut_keep_the_whole_tree(tmp_path: Path) -> None:
    learned, filters = tokenizer(Bpe(size=16)), Filters(max_length=3, long="truncate")
    prepared = prepare_corpora([corpus(tmp_path)], {"source": learned, "target": learned}, filters, tmp_path / "cache")
    assert prepared.columns["source"].lengths.max() == 3
    assert prepared.annotations["heads"][2].tolist() == [3, 3, 0, 3, 4]


def test_other_heads_are_other_data(tmp_path: Path) -> None:
    columns = {"source": tokenizer(Word()), "target": tokenizer(Word())}
    without = Corpus(source=corpus(tmp_path).source, target=corpus(tmp_path).target)
    first = prepare_corpora([corpus(tmp_path)], columns, Filters(), tmp_path / "cache")
    assert prepare_corpora([without], columns, Filters(), tmp_path / "cache").annotations == {}
    other = [(s, t, [0, *range(1, len(h))] if h else h) for s, t, h in ROWS]
    second = prepare_corpora([corpus(tmp_path, other)], columns, Filters(), tmp_path / "cache")
    assert first.fingerprint != second.fingerprint
    assert second.annotations["heads"][0].tolist() == [0, 1]


def test_a_sentence_of_other_words_names_the_line_of_the_text(tmp_path: Path) -> None:
    rows = [*ROWS, ("low low", "f", [0, 1, 1])]
    columns = {"source": tokenizer(Word()), "target": tokenizer(Word())}
    with pytest.raises(RegardError, match=r"train.en \+ .*train.de, line 7: 2 words in the text, but heads for 3"):
        prepare_corpora([corpus(tmp_path, rows)], columns, Filters(), tmp_path / "cache")


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_the_tokenizer_counts_words_as_they_are_spaced(kind: str) -> None:
    """Also where characters are unknown: else a good file would be refused."""
    learned, draw = tokenizer(Word() if kind == "word" else Bpe(size=16)), random.Random(3)
    for _ in range(200):
        line = " ".join("".join(draw.choices("lowernst☃Ü", k=draw.randint(1, 4))) for _ in range(draw.randint(1, 6)))
        assert max(learned.words(learned.encode(line))) + 1 == len(learned.normalise(line).split())
