"""The section `text:` of a recipe: one dataclass for each kind of vocabulary. Nothing is trained here."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from regard.config import at_least, option


@dataclass(frozen=True)
class Text:
    """The settings that every kind has."""

    one_tokenizer: ClassVar[bool] = True  # a shared vocabulary is one tokenizer; else two that number pieces alike

    kind: str = "?"
    shared: bool = option(True, "one vocabulary for source and target")
    normalise: Literal["none", "nfc", "nfkc"] = option("none", "Unicode normal form")
    lower: bool = option(False, "lower-case the text")
    moses: bool = option(False, "Moses normalisation and tokenisation first; undone in what `translate` prints")
    min_frequency: int = option(2, "never merge a pair of pieces seen fewer times than this")
    sample_lines: int = option(1_000_000, "train the vocabulary on at most this many lines")
    sample_bytes: int = option(50_000_000, "train the vocabulary on at most this many bytes of text")

    def files(self) -> list[str]:
        """Files that are read instead of training a vocabulary."""
        return []

    @property
    def sampling(self) -> dict[str, float]:
        """How training samples segmentations; empty: it does not."""
        return {}

    def __post_init__(self) -> None:
        at_least(self, 1, "min_frequency", "sample_lines", "sample_bytes")
        size = vars(self).get("size")
        if size is not None and size < 5:
            raise ValueError(f"size must be at least 5 (four special tokens and a piece), not {size}")
        for name, value in self.sampling.items():
            top = {"dropout": 1.0, "alpha": 100.0}[name]
            if not 0 <= value < top:
                raise ValueError(f"{name} must be at least 0 and below {top:g}, not {value}")


@dataclass(frozen=True)
class Word(Text):
    """Whole words; a Chinese or Japanese character is a word unless a segmenter finds longer ones."""

    kind: Literal["word"] = "word"
    min_frequency: int = option(1, "leave out words seen fewer times than this")
    size: int = option(30_000, "largest vocabulary, special tokens included; rarer words become <unk>")
    segmenter: Literal["none", "jieba", "spaces"] = option(
        "none", "how Chinese is cut: each character a word, by jieba, or at spaces only, as text that is cut already"
    )


@dataclass(frozen=True)
class Char(Text):
    """Single characters, spaces included."""

    kind: Literal["char"] = "char"
    min_frequency: int = option(1, "leave out characters seen fewer times than this")


@dataclass(frozen=True)
class Bpe(Text):
    """Byte-pair encoding of characters (Sennrich 2016, arXiv:1508.07909), with an end-of-word mark."""

    kind: Literal["bpe"] = "bpe"
    size: int = option(10_000, "vocabulary size, special tokens included")
    dropout: float = option(0.0, "BPE-dropout while training (arXiv:1910.13267); 0 is off")

    @property
    def sampling(self) -> dict[str, float]:
        return {"dropout": self.dropout} if self.dropout else {}


@dataclass(frozen=True)
class ByteBpe(Text):
    """Byte-pair encoding of UTF-8 bytes as in GPT-2: nothing is unknown, every space is kept."""

    kind: Literal["byte_bpe"] = "byte_bpe"
    size: int = option(10_000, "vocabulary size, special tokens and the 256 bytes included")
    dropout: float = option(0.0, "BPE-dropout while training (arXiv:1910.13267); 0 is off")

    @property
    def sampling(self) -> dict[str, float]:
        return {"dropout": self.dropout} if self.dropout else {}


@dataclass(frozen=True)
class WordPiece(Text):
    """Greedy longest match with `##` continuations, as in BERT; trained by frequency, not likelihood."""

    kind: Literal["wordpiece"] = "wordpiece"
    size: int = option(10_000, "vocabulary size, special tokens included")


@dataclass(frozen=True)
class Unigram(Text):
    """The most probable segmentation under a unigram model of pieces (Kudo 2018, arXiv:1804.10959)."""

    kind: Literal["unigram"] = "unigram"
    size: int = option(8_000, "vocabulary size, special tokens included")
    alpha: float = option(0.0, "while training, sample segmentations by p(x)^alpha; 0 is off")

    @property
    def sampling(self) -> dict[str, float]:
        return {"alpha": self.alpha} if self.alpha else {}


@dataclass(frozen=True)
class SentencePiece(Text):
    """An existing SentencePiece `.model` (Unigram or BPE); nothing is trained."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    path: str = option("", "the .model file (the source's, when target_path is given)")
    target_path: str = option("", "the target's .model file, if it has its own; needs shared: false")

    def files(self) -> list[str]:
        return [path for path in (self.path, self.target_path) if path]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise ValueError("path must name a .model file")
        if bool(self.target_path) == self.shared:
            raise ValueError("target_path and shared: false belong together")


@dataclass(frozen=True)
class Marian(Text):
    """OPUS-MT's two SentencePiece models with one table of ids; nothing is trained."""

    one_tokenizer: ClassVar[bool] = False

    kind: Literal["marian"] = "marian"
    path: str = option("", "the folder of source.spm, target.spm and vocab.json")

    def files(self) -> list[str]:
        return [f"{self.path}/{name}" for name in ("source.spm", "target.spm", "vocab.json")]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise ValueError("path must name the folder of source.spm, target.spm and vocab.json")


@dataclass(frozen=True)
class BertPieces(Text):
    """WordPiece with BERT's own cleaning, which sets punctuation apart, and its [CLS] [SEP] [MASK]."""

    kind: Literal["bert"] = "bert"
    path: str = option("", "an existing vocab.txt, or the folder that holds it; empty: one is learned")
    size: int = option(10_000, "vocabulary size, special tokens included, where it is learned")
    lower: bool = option(True, "lower-case the text and drop its accents")

    def files(self) -> list[str]:
        return [str(self.vocabulary)] if self.path else []

    @property
    def vocabulary(self) -> Path:
        path = Path(self.path)
        return path if path.suffix == ".txt" else path / "vocab.txt"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moses or self.normalise != "none":
            raise ValueError("kind bert cleans text by rules of its own; leave out moses and normalise")


TextConfig = Word | Char | Bpe | ByteBpe | WordPiece | Unigram | SentencePiece | Marian | BertPieces
