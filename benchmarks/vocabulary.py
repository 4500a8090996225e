"""Unigram vocabularies against sentencepiece's own: tokens of held-out text, seconds, coverage the same on both sides.

python benchmarks/vocabulary.py [--lines 40000] [--json FILE]
"""

import argparse
import io
import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from common import arguments, write_json

from regard.data.config import Corpus
from regard.data.readers import read_corpus
from regard.text import Unigram, train_tokenizer


class Case(NamedTuple):
    set: str  # of the catalog
    languages: tuple[str, ...]  # of its two sides; none: text of one side
    texts: tuple[str, ...]  # the sides that are learned from
    lines: int  # of the training split
    sizes: tuple[int, ...]
    coverage: float = 1.0


CASES = {
    "Multi30k en": Case("multi30k", ("en", "de"), ("en",), 29_000, (2000, 4000, 8000)),
    "Multi30k de": Case("multi30k", ("en", "de"), ("de",), 29_000, (2000, 4000, 8000)),
    "Multi30k de, 10,000 lines": Case("multi30k", ("en", "de"), ("de",), 10_000, (4000,)),
    "WikiText-2, 8,000 lines": Case("wikitext-2", (), (), 8_000, (8000,)),
    "classical and modern zh": Case(
        "classical-modern-zh", ("lzh", "zh"), ("lzh", "zh"), 40_000, (8000, 16_000), 0.9995
    ),
}


def lines_of(case: Case, split: str, lines: int | None = None) -> list[str]:
    corpus, pair = Corpus(set=f"{case.set}:{split}"), case.languages
    if not pair:
        return [r.fields[0] for r in islice(read_corpus(corpus, ("text",)), lines) if r.fields[0].strip()]
    sides = [pair.index(language) for language in case.texts]
    records = islice(read_corpus(corpus, ("source", "target"), pair), lines)
    return list(chain.from_iterable([record.fields[side] for side in sides] for record in records))


def sentencepiece_tokens(texts: Sequence[str], held_out: Sequence[str], size: int, coverage: float) -> int:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="unigram", vocab_size=size, pad_id=3,
        character_coverage=coverage, normalization_rule_name="identity", minloglevel=2)  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return sum(map(len, processor.encode(list(held_out))))


def measure(name: str, case: Case, size: int, lines: int) -> dict[str, Any]:
    texts = lines_of(case, "train", min(case.lines, lines))
    held_out = lines_of(case, "valid")
    began = time.monotonic()
    tokenizer = train_tokenizer(Unigram(size=size, coverage=case.coverage), texts)
    seconds = time.monotonic() - began
    ours = sum(map(len, tokenizer.encode_batch(held_out)))
    theirs = sentencepiece_tokens(texts, held_out, size, case.coverage)
    assert tokenizer.size == size
    row = {"text": name, "size": size, "lines": len(texts), "tokens": ours, "sentencepiece": theirs}
    return row | {"more": round(ours / theirs - 1, 5), "seconds": round(seconds, 1)}


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--lines", type=int, default=40_000, help="rows of training text at most")
    return parser


def main() -> None:
    options = parser().parse_args()
    rows = []
    print("| text | size | lines | tokens | sentencepiece | more | seconds |\n|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        for size in case.sizes:
            row = measure(name, case, size, options.lines)
            rows.append(row)
            print("| {text} | {size:,} | {lines:,} | {tokens:,} | {sentencepiece:,} | {more:+.2%} | {seconds} |"
                  .format(**row), flush=True)  # fmt: skip
    write_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
