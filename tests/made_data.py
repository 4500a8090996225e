"""Miniature data in the exact layout of every set of the catalog, files of a user's own, and a random BERT.

`make(root, "multi30k")` writes ROOT/multi30k, where REGARD_DATA=ROOT is searched for it; `make_all(root)` writes every
set; `make_own(folder)` the files that the recipes of the documents name; `make_bert(folder)` weights in Hugging Face's
form. Equal arguments give equal bytes. Needs no network, and none of the packages that only tests need.
"""

import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from regard.data.sets import SETS, Set

ROWS = {"train": 200, "valid": 40, "test": 40, "all": 200}
COLUMNS = {  # of GLUE's files; None: no header
    "glue/SST-2": ["sentence", "label"],
    "glue/CoLA": None,
    "glue/MRPC": ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    "glue/RTE": ["index", "sentence1", "sentence2", "label"],
    "glue/STS-B": [
        *("index", "genre", "filename", "year", "old_index", "source1", "source2"),
        *("sentence1", "sentence2", "score"),
    ],
}
TAGS = ("O", "B-PER", "B-LOC", "B-ORG", "B-MISC")


class Words:
    """Sentences of made words, frequent and rare ones; a word has a translation, so there is something to learn."""

    def __init__(self, seed: str, words: int) -> None:
        self.draw = random.Random(seed)
        self.words = [_word(n) for n in range(words)]
        self.weights = [1 / (n + 1) for n in range(words)]  # Zipf: a few words are most of a text

    def some(self, least: int = 4, most: int = 12) -> list[str]:
        return self.draw.choices(self.words, self.weights, k=self.draw.randint(least, most))

    def sentence(self, end: str = ".") -> str:
        return " ".join(self.some()).capitalize() + end

    def spaced(self) -> str:
        return self.sentence(" .")

    def chinese(self) -> str:
        return "".join(chr(0x4E00 + self.words.index(word)) for word in self.some()) + "。"

    def dialogue(self) -> list[str]:
        return [self.sentence(" ?" if n % 2 else " .") for n in range(self.draw.randint(2, 5))]

    def trees(self, text: str) -> str:
        """The text in CoNLL-U: every word hangs on the one before."""
        words = enumerate(text.split(), 1)
        return _lines("\t".join([str(n), word, *"____", str(n - 1), *"___"]) for n, word in words)


def translated(sentence: str, ending: str) -> str:
    """The words with another ending, in reverse."""
    words = sentence.removesuffix(".").lower().split()
    return " ".join(word + ending for word in reversed(words)).capitalize() + "."


def _word(number: int) -> str:
    consonants, vowels, word = "bdfgklmnprstvz", "aeiou", ""
    while True:
        number, syllable = divmod(number, len(consonants) * len(vowels))
        word += consonants[syllable // len(vowels)] + vowels[syllable % len(vowels)]
        if not number:
            return word


# --- the sets of the catalog ---------------------------------------------------------------------------------------


def make(root: str | Path, name: str, rows: int | None = None, words: int = 300) -> Path:
    """The set `name` in its folder under `root`: so many rows a split (by default 200 and 40) of so many words."""
    entry = SETS[name]
    folder = Path(root) / name
    folder.mkdir(parents=True, exist_ok=True)
    for split, names in entry.splits.items():
        texts = Words(f"{name} {split}", words)
        contents = LAYOUTS[entry.layout](entry, texts, split, rows or ROWS.get(split, 0))
        for file, content in zip(names, contents, strict=True):
            _write(folder / file, content)
    return folder


def make_all(root: str | Path, rows: int | None = None, words: int = 300) -> Path:
    for name in SETS:
        make(root, name, rows, words)
    return Path(root)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8")
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _parallel(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    source = [texts.sentence() for _ in range(rows)]
    return [_lines(source), *(_lines(translated(s, end) for s in source) for end in ("en", "er"))]


def _columns(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    if "zh" in entry.languages:
        source = [texts.chinese() for _ in range(rows)]
        return [_lines(f"{s}\t{s.removesuffix('。')[::-1]}的。" for s in source)]
    source = [texts.sentence() for _ in range(rows)]
    return [_lines(f"{s}\t{translated(s, 'en')}" for s in source)]


def _text(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    if entry.name == "wikitext-2":  # articles with headings, a space around every line, a word that is unknown
        lines = []
        for n in range(rows):
            title = [" ", f" = {texts.some(1, 2)[0].capitalize()} = ", " "] if n % 8 == 0 else []
            lines += [*title, f" {texts.spaced()} <unk> {texts.spaced()} "]
        return [_lines(lines)]
    texts.draw.seed(entry.name)  # its splits are parts of one file
    return [_lines(f"{texts.words[n % 7].capitalize()}:\n{texts.sentence()}\n" for n in range(rows))]


def _dialogue(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    return [_lines(" __eou__ ".join(texts.dialogue()) + " __eou__" for _ in range(rows))]


def _table(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    """Label 1 where the first word is among the ten most frequent ones; of a pair, where both are."""
    header = COLUMNS[entry.name]
    width = len(header) if header else 4
    lines = ["\t".join(header)] if header else []
    for n in range(rows):
        cells = [str(n)] * width
        sentences = [texts.spaced(), texts.spaced()]
        firsts = [texts.words.index(sentence.split()[0].lower()) for sentence in sentences]
        for key, at in entry.columns.items():
            if key.startswith("sentence"):
                cells[at] = sentences[key.endswith("2")]
            elif key == "score":
                cells[at] = f"{5 / (1 + abs(firsts[0] - firsts[1])):.3f}"
            else:
                label = int(firsts[0] < 10 and ("sentence2" not in entry.columns or firsts[1] < 10))
                cells[at] = ("not_entailment", "entailment")[label] if entry.name == "glue/RTE" else str(label)
        lines.append("\t".join(cells))
    return [_lines(lines)]


def _conll(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    """A word is always of one kind; the rare ones are names, of one or two words."""
    lines = []
    for n in range(rows):
        lines += ["-DOCSTART- -X- -X- O", ""] if n % 20 == 0 else []
        before = "O"
        for word in texts.some():
            at = texts.words.index(word)
            tag = TAGS[at % len(TAGS)] if at > 5 else "O"
            tag = tag.replace("B-", "I-") if tag != "O" and before[2:] == tag[2:] and before != "O" else tag
            lines.append(f"{word.capitalize() if tag != 'O' else word} NN B-NP {tag}")
            before = tag
        lines += [". . O O", ""]
    return [_lines(lines)]


def _squad(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    paragraphs = []
    for n in range(rows):
        context = " ".join(texts.sentence() for _ in range(3))
        answer = texts.draw.choice(context.split())
        spans = [{"text": answer, "answer_start": context.index(answer)}]
        question = {"id": f"{split}-{n}", "question": texts.sentence("?"), "answers": spans}
        paragraphs.append({"context": context, "qas": [question]})
    return [json.dumps({"version": "1.1", "data": [{"title": "Made", "paragraphs": paragraphs}]})]


def _dream(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    dialogues = []
    for n in range(rows):
        options = [f"{n}. {texts.sentence()}" for n in range(3)]
        question = {"question": texts.sentence("?"), "choice": options, "answer": texts.draw.choice(options)}
        turns = [f"{'MW'[n % 2]}: {turn}" for n, turn in enumerate(texts.dialogue())]
        dialogues.append([turns, [question], f"{split}-{n}"])
    return [json.dumps(dialogues, indent=2)]


def _scitldr(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    papers = [
        {
            "source": [texts.sentence() for _ in range(3)],
            "source_labels": [1, 0, 0],
            "rouge_scores": [1.0, 0.0, 0.0],
            "paper_id": f"{split}-{n}",
            "target": [texts.sentence()],
            "title": texts.sentence(""),
        }
        for n in range(rows)
    ]
    return [_lines(map(json.dumps, papers))]


def _vocabulary(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    if split != "gpt2":
        return [_lines(pieces(texts.words))]
    from tokenizers.pre_tokenizers import ByteLevel

    merges = [("Ġ", letter) for letter in "abdefgiklmnoprstuvz"]
    names = [*sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges), "<|endoftext|>"]
    table = {name: n for n, name in enumerate(names)}
    return [json.dumps(table), _lines(["#version: 0.2", *(" ".join(pair) for pair in merges)])]


def _none(entry: Set, texts: Words, split: str, rows: int) -> list[str]:
    return []


LAYOUTS: dict[str, Callable[[Set, Words, str, int], list[str]]] = {
    "lines": _parallel,
    "columns": _columns,
    "text": _text,
    "dialogue": _dialogue,
    "table": _table,
    "conll": _conll,
    "squad": _squad,
    "dream": _dream,
    "scitldr": _scitldr,
    "vocabulary": _vocabulary,
    "embedded": _none,  # the package makes it
}


# --- a user's own files --------------------------------------------------------------------------------------------


def make_own(folder: str | Path, rows: int = 120, words: int = 300) -> Path:
    """The files that the recipes of README and docs name, by the names they have there."""
    folder = Path(folder)
    texts = Words("own", words)
    for stem, count in (("train", rows), ("news", rows), ("valid", 30), ("test", 30)):
        source = [texts.sentence() for _ in range(count)]
        _write(folder / f"{stem}.en", _lines(source))
        _write(folder / f"{stem}.de", _lines(translated(s, "en") for s in source))
        _write(folder / f"{stem}.conllu", _lines(texts.trees(s) for s in source))
    pairs = [(s, translated(s, "en")) for s in (texts.sentence() for _ in range(rows))]
    _write(folder / "web.tsv.gz", _lines("\t".join(pair) for pair in pairs))
    for stem, count in (("train", rows), ("valid", 30)):
        [table] = _table(SETS["glue/SST-2"], texts, stem, count)
        _write(folder / f"{stem}.tsv", table)
    for stem, count in (("dialogues", rows), ("held-out", 30)):
        _write(folder / f"{stem}.jsonl", _lines(json.dumps({"turns": texts.dialogue()}) for _ in range(count)))
    for name, count in (("stories.txt", rows), ("held-out.txt", 30)):
        _write(folder / name, _documents(texts, count))
    for name, count in (("texts/train", rows), ("texts/valid", 30), ("my/texts", rows), ("my/held-out", 30)):
        for part in "ab":
            _write(folder / name / f"{part}.txt", _documents(texts, count // 2))
    return folder


def _documents(texts: Words, count: int) -> str:
    """Documents of a few lines, a blank line between them."""
    return _lines(f"{texts.sentence()}\n{texts.sentence()} {texts.sentence()}\n" for _ in range(count))


# --- weights of others ---------------------------------------------------------------------------------------------


def pieces(words: Iterable[str], size: int | None = None) -> list[str]:
    """BERT's vocabulary for these words, filled up to `size` where one is given."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,?!:'\"-"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), *words]
    return names + [f"[unused{n}]" for n in range((size or 0) - len(names))]


def make_bert(
    folder: str | Path, layers: int = 2, size: int = 32, inner: int = 64, heads: int = 2, entries: int = 400
) -> Path:
    """A BertModel with random weights and a vocabulary of made words, as Hugging Face saves it.

    `regard import hf FOLDER RUN` reads it. That of MiniLM: layers=6, size=384, inner=1536, heads=12, entries=30522.
    """
    folder, length = Path(folder), 512
    said: dict[str, Any] = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": entries,
        "num_hidden_layers": layers,
        "hidden_size": size,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
        "max_position_embeddings": length,
        "pad_token_id": 0,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (entries, size),
        "embeddings.position_embeddings.weight": (length, size),
        "embeddings.token_type_embeddings.weight": (2, size),
        "pooler.dense.weight": (size, size),
    }
    for n in range(layers):
        layer = f"encoder.layer.{n}"
        shapes |= {f"{layer}.attention.self.{part}.weight": (size, size) for part in ("query", "key", "value")}
        shapes[f"{layer}.attention.output.dense.weight"] = (size, size)
        shapes[f"{layer}.intermediate.dense.weight"] = (inner, size)
        shapes[f"{layer}.output.dense.weight"] = (size, inner)
    norms = ["embeddings", *(f"encoder.layer.{n}.{p}" for n in range(layers) for p in ("attention.output", "output"))]
    draw = torch.Generator().manual_seed(zlib.crc32(repr(said).encode()))
    tensors = {name: torch.randn(shape, generator=draw) * 0.02 for name, shape in shapes.items()}
    dense = [name for name in shapes if "embeddings" not in name]
    tensors |= {name.replace(".weight", ".bias"): torch.zeros(shapes[name][0]) for name in dense}
    tensors |= {f"{name}.LayerNorm.weight": torch.ones(size) for name in norms}
    tensors |= {f"{name}.LayerNorm.bias": torch.zeros(size) for name in norms}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    _write(folder / "config.json", json.dumps(said, indent=1))
    _write(folder / "tokenizer_config.json", json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}))
    _write(folder / "vocab.txt", _lines(pieces(map(_word, range(300)), entries)[:entries]))
    return folder
