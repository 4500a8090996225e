"""The embedded English-German corpus: the rows of one packed file, with pronouns, dependency trees and minimal pairs.

The file is written by `python -m tools.grammar.make` of the repository; this module knows no grammar. Its lines are
columns with tabs between them: split, English, German, construction, pronouns, heads. A pronoun is three numbers with
colons, the indices from 0 of the English word, its noun and the German word. Heads are as in `annotations.py`: for each
English word the number of its head, from 1; 0 is above the root. Words are separated by spaces.
`tools/grammar/trees.py` says what is attached to what.
"""

import bz2
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
FILE = Path(__file__).with_name("embedded.tsv.bz2")
MINIMAL = "minimal:"  # and a split: the first column of minimal pairs, whose two rows follow each other
FORMS = frozenset("er sie es ihn ihm ihr ihre ihren ihrem ihrer sein seine seinen seinem seiner".split())  # noqa: SIM905

# What fingerprints say of the texts of the three splits: the hashes of the files that wrote them when they were made at
# run time, so that prepared data and interrupted runs of that time go on. Other texts, another constant.
HASHES = """\
ed8c0339922667eae25cbc996cb39342 beb70a56a673544568c88e1b619221f9 3ea167f30ec168ac776ffafa30381734
19873de5292a27a2b34070f822002fb9 b92a9f98ecb06701597b534399e96d4d ac22d18e3f8b001087482220121a976f
86cd1254517555e613a4476dfd1382c6 1dfb3f1a9cb5257466d8e105352df385 212e5e352955b78c7f56d40aede8e7a9
f82b5ebd8df12ec4eef813b3150759e8 20015d7f6789eb49d2c76a6dfcbc38ca f8eed9c44b478c06d0a2f0b4d92cd452
f1dffab7037ce54d5180ea8abc028b9c 0cc4f84a131703f5a187a88b95152439 cd47e6c2dcc5de3df3006410641947b5
c417cb31480ac2bdc94730867c684717 bb6b1f20508627a9e6d010d5014b79b1""".split()  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class Pronoun:
    """Word indices (split on spaces, from 0) of a pronoun and its noun, and the German form."""

    english: int
    referent: int
    german: int
    form: str


@dataclass(frozen=True, slots=True)
class Pair:
    source: str
    target: str
    construction: str
    pronouns: tuple[Pronoun, ...]
    heads: tuple[int, ...]  # of the words of the source


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """Two sentences that differ in one English word, on which depends what `it` refers to, and its German form.

    In `first` it refers to the noun that comes first. `split` is the split in which the two nouns compete for a
    pronoun: those of valid and test never do so in training.
    """

    first: Pair
    second: Pair
    split: Split

    @property
    def referents(self) -> tuple[str, str]:
        """What `it` refers to in the first and in the second sentence: ("animal", "street")."""
        return tuple(bare(p.source.split()[p.pronouns[0].referent]) for p in (self.first, self.second))  # type: ignore[return-value]

    @property
    def differs(self) -> int:
        """The index, from 0, of the English word in which the sentences differ."""
        words = zip(self.first.source.split(), self.second.source.split(), strict=True)
        return next(i for i, (one, two) in enumerate(words) if one != two)


def bare(word: str) -> str:
    return word.strip(".,?!").lower()


@cache
def _lines() -> dict[str, list[str]]:
    """The lines of the file by their first column, which is cut off."""
    lines: dict[str, list[str]] = {}
    for line in bz2.decompress(FILE.read_bytes()).decode().splitlines():
        split, _, rest = line.partition("\t")
        lines.setdefault(split, []).append(rest)
    return lines


def _pair(line: str) -> Pair:
    source, target, construction, pronouns, heads = line.split("\t")
    words = target.split()
    indices = [[int(n) for n in mark.split(":")] for mark in pronouns.split()]
    marks = tuple(Pronoun(e, r, g, bare(words[g])) for e, r, g in indices)
    return Pair(source, target, construction, marks, tuple(map(int, heads.split())))


@cache
def _pairs(split: str) -> tuple[Pair, ...]:
    return tuple(_pair(line) for line in _lines()[split])


def pairs(split: Split) -> list[Pair]:
    return list(_pairs(split))


def find(source: str) -> Pair | None:
    """The pair of this English sentence, where a split has it."""
    lines = (line for split in SPLITS for line in _lines()[split])
    return next((_pair(line) for line in lines if line.startswith(f"{source}\t")), None)


def trees(split: Split) -> list[list[int]]:
    """For each pair of the split the heads of its English words."""
    return [list(pair.heads) for pair in _pairs(split)]


def conllu(split: Split) -> str:
    """The trees as a CoNLL-U file, which `heads` of a recipe can name beside `set: embedded:SPLIT`."""
    rows = [enumerate(zip(pair.source.split(), pair.heads, strict=True), 1) for pair in _pairs(split)]
    text = ["".join(f"{n}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for n, (word, head) in row) for row in rows]
    return "".join(f"{sentence}\n" for sentence in text)


def minimal_pairs(split: Split | None = None) -> list[MinimalPair]:
    """Those whose nouns compete in the split, or all."""
    chosen = [(s, _pairs(MINIMAL + s)) for s in SPLITS if split in (None, s)]
    return [MinimalPair(*both, s) for s, rows in chosen for both in zip(rows[::2], rows[1::2], strict=True)]


def pronouns_right(pair: Pair, hypothesis: str) -> tuple[int, int]:
    """How many of the pair's pronouns the hypothesis has right, and how many there are.

    A hypothesis with as many words as the reference is compared at the recorded indices; any other by the
    sequence of pronoun forms in it, where the reference has as many, and by their multiset otherwise.
    """
    hypothesis_words, reference_words = [bare(w) for w in hypothesis.split()], [bare(w) for w in pair.target.split()]
    if len(hypothesis_words) == len(reference_words):
        return sum(hypothesis_words[p.german] == p.form for p in pair.pronouns), len(pair.pronouns)
    forms = [w for w in hypothesis_words if w in FORMS]
    indices = [i for i, w in enumerate(reference_words) if w in FORMS]
    if len(forms) == len(indices):
        return sum(forms[indices.index(p.german)] == p.form for p in pair.pronouns), len(pair.pronouns)
    left, right = Counter(forms), 0
    for pronoun in pair.pronouns:
        right += left[pronoun.form] > 0
        left[pronoun.form] -= 1
    return right, len(pair.pronouns)
