"""Normalisation of text before its pieces are looked up: Unicode form, Moses, case, spaces, Chinese words.

Knows no vocabulary and no files.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import RegardError
from regard.text import moses

# Han, kana and full-width punctuation are written without spaces; Hangul is not.
CJK = "\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
CJK += "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f"
_ONE_CJK = re.compile(f"([{CJK}])")
_CJK_GAP = re.compile(f"(?<=[{CJK}]) (?=[{CJK}])")


@dataclass(frozen=True)
class TextNormaliser:
    """The text form that a vocabulary is trained on, and that metrics "on that form" compare."""

    unicode: str = "none"  # none, nfc, nfkc
    moses: bool = False
    lower: bool = False
    fold: bool = True  # runs of white space become one space
    language: str = "en"  # chooses the Moses rules

    def apply(self, text: str) -> str:
        if self.unicode != "none":
            text = unicodedata.normalize("NFC" if self.unicode == "nfc" else "NFKC", text)
        if self.moses:
            text = moses.tokenise(moses.normalise_punctuation(text, self.language), self.language)
        if self.lower:  # after Moses, whose abbreviations are cased
            text = text.lower()
        return " ".join(text.split()) if self.fold else text


def space_cjk(text: str) -> str:
    """我爱NLP → 我 爱 NLP."""
    return text if text.isascii() else " ".join(_ONE_CJK.sub(r" \1 ", text).split())


def join_words(words: Sequence[str]) -> str:
    """Words with spaces between them, except between two CJK characters."""
    text = " ".join(words)
    return text if text.isascii() else _CJK_GAP.sub("", text)


@functools.cache
def _jieba() -> Any:
    try:
        import jieba
    except ImportError:
        raise RegardError('segmenter: jieba needs the package jieba; run pip install "regard[zh]"') from None
    jieba.setLogLevel(60)
    jieba.initialize()
    return jieba


def segment_chinese(text: str) -> str:
    """我爱中国 → 我 爱 中国, by jieba's dictionary."""
    return text if text.isascii() else " ".join(" ".join(_jieba().cut(text)).split())
