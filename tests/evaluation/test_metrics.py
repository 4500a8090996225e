"""Metrics are the field's own numbers: sacreBLEU's, with its tokeniser for the language, and its signature."""

import math

import pytest
import sacrebleu

from regard.errors import RegardError
from regard.evaluation import text_metrics
from regard.evaluation.metrics import perplexity

OUTPUTS = ["Der Hund läuft im Park.", "Ein Mann liest eine Zeitung .", "Sie singt!", ""]
REFERENCES = ["Der Hund rennt im Park.", "Ein Mann liest die Zeitung.", "Sie singt!", "Ja."]
CHINESE = ["我喜欢喝茶。", "今天天气很好"]
CHINESE_REFERENCES = ["我喜欢喝绿茶。", "今天的天气很好"]


def test_the_numbers_are_sacrebleus() -> None:
    found = text_metrics(OUTPUTS, REFERENCES, "de")
    assert found["bleu"].value == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score, abs=1e-4)
    assert found["chrf"].value == pytest.approx(sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score, abs=1e-4)
    assert found["ter"].value == pytest.approx(sacrebleu.corpus_ter(OUTPUTS, [REFERENCES]).score, abs=1e-4)
    assert 0 < found["bleu"].value < 100


@pytest.mark.parametrize("language, tokeniser", [("de", "13a"), ("zh", "zh"), ("zh-CN", "zh"), ("ja", "char")])
def test_the_language_chooses_the_tokeniser(language: str, tokeniser: str) -> None:
    found = text_metrics(CHINESE, CHINESE_REFERENCES, language)["bleu"]
    assert f"tok:{tokeniser}|" in found.signature
    expected = sacrebleu.corpus_bleu(CHINESE, [CHINESE_REFERENCES], tokenize=tokeniser).score
    assert found.value == pytest.approx(expected, abs=1e-4)


def test_chinese_is_not_measured_as_one_long_word() -> None:
    assert text_metrics(CHINESE, CHINESE_REFERENCES, "zh")["bleu"].value > 30
    assert text_metrics(CHINESE, CHINESE_REFERENCES, "zh", tokenise="13a")["bleu"].value < 1
    assert text_metrics(CHINESE, CHINESE_REFERENCES, "zh")["ter"].value < 50


def test_a_recipe_may_choose_the_tokeniser() -> None:
    found = text_metrics(OUTPUTS, REFERENCES, "de", tokenise="none")["bleu"]
    assert "tok:none|" in found.signature
    assert found.value == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], tokenize="none").score, abs=1e-4)


def test_signatures_name_everything_that_matters() -> None:
    found = text_metrics(OUTPUTS, REFERENCES, "de")
    assert found["bleu"].signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nc:6|nw:0" in found["chrf"].signature
    assert "case:lc" in found["ter"].signature
    assert found["bleu"].json().keys() == {"value", "signature"}
    assert found["exact_match"].json() == {"value": 25.0}


def test_exact_match_counts_whole_lines() -> None:
    assert text_metrics(["a", "B", "c ", "d"], ["a", "b", "c", "d"], "en")["exact_match"].value == 50.0


def test_while_training_bleu_alone_is_measured() -> None:
    assert text_metrics(OUTPUTS, REFERENCES, "de", full=False).keys() == {"bleu"}


def test_wrong_counts_and_nothing_are_refused() -> None:
    with pytest.raises(RegardError, match="2 outputs cannot be measured against 3 references"):
        text_metrics(["a", "b"], ["a", "b", "c"], "en")
    with pytest.raises(RegardError, match="nothing to measure"):
        text_metrics([], [], "en")


def test_perplexity() -> None:
    assert perplexity(4 * math.log(50), 4) == pytest.approx(50)  # one of fifty words, each as likely
    assert perplexity(1e6, 1) == math.inf
    assert perplexity(0.0, 0) == 1.0
