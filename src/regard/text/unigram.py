"""Unigram vocabularies, trained by the sentencepiece library: EM over pieces, pruned to a size (arXiv:1804.10959).

One thread, so equal texts give equal pieces and scores. Knows no files and no special tokens.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from regard.errors import RegardError
from regard.text.spm import parse_sentencepiece

_RESERVED = "\0\t▁▅\u2047\ufffd"  # characters that mean something to the library, which drops their lines
_LONG = 512  # characters of a line
_TOO_FEW = re.compile(r"smaller than required_chars\. (\d+) vs (\d+)")


def too_few_pieces(size: int, least: int, more: str = "") -> RegardError:
    enough, whole_bytes = f"text.size={least}", "text.kind=byte_bpe"
    return RegardError(
        f"the text has so many different characters that {size} pieces are too few; "
        f"write {enough} or more, {more}or {whole_bytes}"
    )


def train_unigram(texts: Sequence[str], size: int, specials: int, coverage: float) -> list[tuple[str, float]]:
    """Pieces with log-probabilities, the likeliest first; with `specials` more they are exactly `size`.

    A piece that begins a word begins with a space. No word is longer than some hundred characters.
    """
    spm = _sentencepiece()
    to, back = _stand_ins(set().union(*texts))
    written = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=_lines(texts, to),
            model_writer=written,
            model_type="unigram",
            vocab_size=size - specials + 1,  # <unk> is a piece of its own there
            hard_vocab_limit=False,  # the size that it comes to is looked at below
            character_coverage=coverage,
            normalization_rule_name="identity",
            max_sentence_length=2**30,  # longer ones would be left out
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        if not (match := _TOO_FEW.search(str(error))):
            raise
        lower = "text.coverage=0.9995, " if coverage > 0.9995 else ""
        raise too_few_pieces(size, int(match[2]) + specials - 1, lower) from None
    model = parse_sentencepiece(written.getvalue(), "sentencepiece's model")
    pieces = [(text.replace("▁", " ").translate(back), score) for text, score, _ in model.pieces[1:]]
    if len(pieces) + specials < size:
        reached = len(pieces) + specials
        most = f"text.size={reached}"
        raise RegardError(f"the text allows at most {reached} pieces; write {most} or less")
    return sorted(pieces, key=lambda item: (-item[1], item[0]))


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise RegardError(
            'text.kind=unigram is trained by the package sentencepiece; run pip install "regard[spm]"'
        ) from None
    return sentencepiece


def _lines(texts: Iterable[str], stand_ins: dict[int, int]) -> Iterator[str]:
    """The texts, long ones cut between words, each part once: the library's time is quadratic in what repeats."""
    seen: set[str] = set()
    for text in texts:
        line = text.strip(" ").translate(stand_ins)
        start = 0
        while len(line) - start > _LONG and (cut := line.find(" ", start + _LONG)) > 0:
            if (part := line[start:cut]) not in seen:
                seen.add(part)
                yield part
            start = cut + 1
        yield line[start:]


def _stand_ins(alphabet: Iterable[str]) -> tuple[dict[int, int], dict[int, int]]:
    """Unused private characters for the reserved ones, and the way back."""
    used = {ord(character) for character in alphabet}
    free = (number for number in range(0x10FFFD, 0xF0000, -1) if number not in used)
    to = {ord(character): next(free) for character in _RESERVED if ord(character) in used}
    return to, {stand_in: character for character, stand_in in to.items()}
