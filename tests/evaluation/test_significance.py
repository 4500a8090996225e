"""Paired bootstrap: the values of sacreBLEU itself, and what is and is not more than chance."""

import pytest
import sacrebleu

from regard.errors import RegardError
from regard.evaluation.significance import paired_bootstrap

REFERENCES = [f"the {colour} {animal} sleeps in house number {n}" for n in range(20)
              for colour, animal in (("red", "dog"), ("blue", "cat"))]  # fmt: skip


def test_a_clear_difference_is_found_and_none_is_not() -> None:
    worse = [line.replace("sleeps in", "is at") for line in REFERENCES]
    bleu, chrf, ter = paired_bootstrap(worse, REFERENCES, REFERENCES, "13a", 200)
    assert bleu.first == pytest.approx(sacrebleu.corpus_bleu(worse, [REFERENCES]).score)
    assert (bleu.second, chrf.second, ter.second) == pytest.approx((100, 100, 0))
    assert bleu.p_value < 0.05
    assert "bs:200" in bleu.signature
    same = paired_bootstrap(worse, list(worse), REFERENCES, "13a", 200)[0]
    assert same.p_value > 0.5


def test_lines_must_be_as_many() -> None:
    with pytest.raises(RegardError, match="cannot be compared"):
        paired_bootstrap(REFERENCES[:3], REFERENCES[:2], REFERENCES[:3], "13a")
