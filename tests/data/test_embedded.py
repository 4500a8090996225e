"""The embedded corpus as it is read: its texts, its trees, its minimal pairs and how pronouns are counted."""

from __future__ import annotations

import hashlib

import pytest

from regard.data import embedded
from regard.data.config import Corpus
from regard.data.conllu import check_heads, sentences
from regard.data.embedded import (
    HASHES,
    SPLITS,
    Pair,
    Pronoun,
    bare,
    conllu,
    minimal_pairs,
    pairs,
    pronouns_right,
    trees,
)
from regard.data.fingerprint import file_hashes, fingerprint


def test_the_texts_are_those_that_the_hashes_stand_for() -> None:
    """Who changes a text or the order changes HASHES too: prepared data and stopped runs are of other texts then."""
    texts = hashlib.sha256()
    for split in SPLITS:
        for pair in pairs(split):
            texts.update(f"{pair.source}\t{pair.target}\n".encode())
    assert [len(pairs(split)) for split in SPLITS] == [52_000, 1_000, 2_000]
    assert (texts.hexdigest(), hashlib.sha256("".join(HASHES).encode()).hexdigest()) == (TEXTS, HASHED)


TEXTS = "9ab00c80aecf780ab3f4889fe566d4369d63e3139d394dd14c8c091dd8f88ff5"
HASHED = "eb7c3013dea703b635482f9ef2e8cbfe502997f1ed8ebf96600e5f6a9bef12c5"


def test_fingerprints_are_those_of_the_time_when_the_rows_were_made_at_run_time() -> None:
    """A run that was interrupted then goes on now."""
    corpora = [[Corpus(set=f"embedded:{split}")] for split in SPLITS]
    found = [fingerprint(corpus, {}, {"x": 1}, ("en", "de")) for corpus in corpora]
    assert found == ["25d0dfa4d806363bb5297c39", "5db90ffaf6bc78d3c1ad3542", "9a182aabdffc3a48292a8f14"]


def test_a_file_beside_the_embedded_corpus_has_its_own_hash(tmp_path) -> None:
    (tmp_path / "a.conllu").write_text("1\tI\n", encoding="utf-8")
    beside = file_hashes(Corpus(set="embedded:test", heads=str(tmp_path / "a.conllu")))
    assert beside[:-1] == HASHES
    assert len(beside) == 18


def test_sentences_are_written_out_cleanly() -> None:
    rows = [p for split in SPLITS for p in pairs(split)]
    assert len({p.source for p in rows}) == len(rows)
    for p in rows:
        for text in (p.source, p.target):
            assert text[-1] in ".?!"
            assert text[0].isupper()
            assert "  " not in text
            assert not set(text) & set("#@_|~{}\t")
    lengths = [len(p.source.split()) for p in rows]
    assert 7 <= sum(lengths) / len(lengths) <= 9
    assert max(lengths) <= 16


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(KeyError):
        pairs("dev")  # type: ignore[arg-type]


# --- trees ---


def test_every_sentence_has_one_tree_over_its_words() -> None:
    rows = [p for split in SPLITS for p in pairs(split)] + [p for m in minimal_pairs() for p in (m.first, m.second)]
    for p in rows:
        assert len(p.heads) == len(p.source.split())
        check_heads(p.heads, [p.source] * len(p.heads))  # one root, no circle


def test_articles_depend_on_a_word_after_them_and_pronouns_have_none_below() -> None:
    for split in SPLITS:
        for p, heads in zip(pairs(split), trees(split), strict=True):
            words = [bare(w) for w in p.source.split()]
            for place, word in enumerate(words, 1):
                if word in ("the", "a", "an", "my", "its", "every"):
                    assert heads[place - 1] > place
                    assert place not in heads
            for pronoun in p.pronouns:
                assert pronoun.english + 1 not in heads


def test_trees_are_written_as_conllu(tmp_path) -> None:
    path = tmp_path / "valid.conllu"
    path.write_text(conllu("valid"), encoding="utf-8")
    assert [heads for _, heads in sentences(path)] == trees("valid")
    assert {line.count("\t") for line in path.read_text(encoding="utf-8").splitlines()} == {0, 9}


# --- minimal pairs ---


def test_minimal_pairs_differ_in_the_word_that_decides_what_it_refers_to() -> None:
    everything = minimal_pairs()
    assert len({m.first.source for m in everything} | {m.second.source for m in everything}) == 2 * len(everything)
    for m in everything:
        (one,), (two,) = m.first.pronouns, m.second.pronouns
        differing = [a != b for a, b in zip(m.first.source.split(), m.second.source.split(), strict=True)]
        assert sum(differing) == 1
        assert differing[m.differs]
        assert (one.english, one.german) == (two.english, two.german)
        assert one.referent < two.referent
        assert one.form != two.form
        assert m.first.heads == m.second.heads
        assert pronouns_right(m.first, m.second.target) == (0, 1)


def test_the_animal_that_did_not_cross_the_street_is_among_them() -> None:
    start = "The animal didn't cross the street because it was too"
    (found,) = [m for m in minimal_pairs("train") if m.first.source.startswith(start)]
    assert (found.first.source, found.second.source) == (f"{start} tired.", f"{start} wide.")
    assert found.referents == ("animal", "street")
    assert [p.pronouns[0].form for p in (found.first, found.second)] == ["es", "sie"]
    assert found.differs == 10


def test_minimal_pairs_are_chosen_by_the_split_in_which_their_nouns_compete() -> None:
    counts = [len(minimal_pairs(split)) for split in SPLITS]
    assert counts == [1_095, 51, 111]
    assert sum(counts) == len(minimal_pairs())
    assert {m.split for m in minimal_pairs("test")} == {"test"}


# --- pronouns ---


def test_a_sentence_that_is_read_has_its_pronouns() -> None:
    with_one = next(p for p in pairs("test") if p.construction == "because_fit")
    (pronoun,) = with_one.pronouns
    assert bare(with_one.source.split()[pronoun.english]) == "it"
    assert with_one.target.split()[pronoun.german] == pronoun.form
    assert embedded.pronouns_right(with_one, with_one.target) == (1, 1)


def test_pronouns_are_counted_at_their_place_or_in_their_order() -> None:
    record = (Pronoun(7, 1, 8, "es"),)
    target = "Das Tier hat die Straße nicht überquert, weil es zu müde war."
    source = "The animal didn't cross the street because it was too tired."
    pair = Pair(source, target, "because_cross", record, ())
    assert pronouns_right(pair, target) == (1, 1)
    assert pronouns_right(pair, target.replace(" es ", " sie ")) == (0, 1)
    assert pronouns_right(pair, target.replace(" nicht", "")) == (1, 1)
    assert pronouns_right(pair, target.replace(" nicht", "").replace(" es ", " er ")) == (0, 1)
    assert pronouns_right(pair, "") == (0, 1)
    assert pronouns_right(pair, "Es war müde, weil sie es war.") == (1, 1)
    assert pronouns_right(Pair("I see.", "Ich sehe.", "x", (), ()), "Er sieht.") == (0, 0)
