"""Passages: a text is all of them, tf-idf is scikit-learn's, centrality is the dense power iteration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from regard.text.passages import TfIdf, centrality, choose_passages, passage_spans, relevance

PASSAGES = [
    "The ship left the harbour at dawn.",
    "Its captain had sailed the harbour for years, and the ship was old.",
    "Bread was cheap.",
    "At dawn the ship met a storm; the captain turned to the harbour.",
    "… — 3",
]


@given(st.text("ab .!?\n\t。，é", max_size=60))
def test_passages_are_the_text(text: str) -> None:
    spans = passage_spans(text)
    assert "".join(text[begin:end] for begin, end in spans) == (text if text.strip() else "")
    assert all(text[begin:end].strip() for begin, end in spans)


def test_paragraphs_or_sentences() -> None:
    def cut(text: str) -> list[str]:
        return [text[begin:end].strip() for begin, end in passage_spans(text)]

    assert cut("One. Two.\nStill two.\n\n\n  Three. \n \nFour") == ["One. Two.\nStill two.", "Three.", "Four"]
    assert cut("One two. Three! Dr. Who came. ") == ["One two.", "Three!", "Dr. Who came."]
    assert cut("我爱你。你呢？好！") == ["我爱你。", "你呢？", "好！"]
    assert cut(" \n\n ") == []


def test_tf_idf_is_scikit_learns() -> None:
    theirs = TfidfVectorizer(token_pattern=r"[^\W_]+")
    wanted = theirs.fit_transform(PASSAGES).toarray()
    ours = TfIdf.of(PASSAGES)
    dense = np.zeros((ours.rows, len(ours.idf)))
    dense[ours.row, ours.column] = ours.value
    columns = [ours.idf[word][0] for word in theirs.get_feature_names_out()]
    np.testing.assert_allclose(dense[:, columns], wanted)
    question = "Where did the captain of the xylophone sail, captain?"
    (vector,) = theirs.transform([question]).toarray()
    np.testing.assert_allclose(relevance(PASSAGES, question), wanted @ vector)
    rest = [np.delete(wanted, n, 0).sum(0) for n in range(len(wanted))]
    cosines = [row @ other / np.linalg.norm(other) for row, other in zip(wanted, rest, strict=True)]
    np.testing.assert_allclose(relevance(PASSAGES), cosines, atol=1e-12)


def test_centrality_is_the_dense_iteration() -> None:
    dense = TfidfVectorizer(token_pattern=r"[^\W_]+").fit_transform(PASSAGES).toarray()
    likeness = dense @ dense.T
    n = len(PASSAGES)
    rows = np.where(likeness.sum(1, keepdims=True) > 0, likeness.sum(1, keepdims=True), np.nan)
    matrix = np.nan_to_num(likeness / rows, nan=1 / n)  # a passage without words is like all
    values, vectors = np.linalg.eig((0.15 / n + 0.85 * matrix).T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    np.testing.assert_allclose(centrality(PASSAGES), stationary / stationary.sum(), atol=1e-7)
    assert centrality(PASSAGES).argmin() in (2, 4)  # what has nothing to do with the rest


def test_a_chinese_character_is_a_word() -> None:
    assert relevance(["我爱北京", "今天下雨"], "北京在哪里").argmax() == 0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 30), st.randoms())
def test_chosen_passages_fit_and_nothing_else_would(sizes: list[int], budget: int, random) -> None:
    scores = np.array([random.random() for _ in sizes])
    chosen = choose_passages(scores, sizes, budget)
    used = sum(sizes[n] for n in chosen)
    assert chosen == sorted(set(chosen))
    assert used <= budget
    assert all(sizes[n] > budget - used for n in range(len(sizes)) if n not in chosen)


def test_equal_passages_are_taken_from_the_beginning() -> None:
    assert choose_passages(np.ones(4), [2, 2, 2, 2], 5) == [0, 1]


@pytest.mark.parametrize("score", [relevance, centrality])
def test_memory_grows_with_the_text(score) -> None:
    """40,000 passages: their likenesses as a matrix would take 12 GB."""
    found = score([f"w{n % 977} w{n % 1009} and more" for n in range(40_000)])
    assert found.shape == (40_000,)
    assert np.isfinite(found).all()
