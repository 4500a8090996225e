"""The section `text:` of a recipe: one dataclass for each kind of vocabulary. Nothing is trained here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.config import Choice, at_least, choice, option


@dataclass(frozen=True)
class TextConfig(Choice, slot="text"):
    """The settings that every kind has."""

    one_tokenizer: ClassVar[bool] = True  # a shared vocabulary is one tokenizer; else two that number pieces alike

    pieces: ClassVar[str] = ""  # of a plugin's kind: which of ours joins its pieces again, such as bpe or wordpiece

    shared: bool = option(True, "one vocabulary for source and target")
    normalise: Literal["none", "nfc", "nfkc"] = option("none", "Unicode normal form")
    lower: bool = option(False, "lower-case the text")
    moses: bool = option(False, "Moses normalisation and tokenisation first; undone in what `translate` prints")
    min_frequency: int = option(2, "never merge a pair of pieces seen fewer times than this")
    sample_lines: int = option(1_000_000, "train the vocabulary on at most this many lines")
    sample_bytes: int = option(50_000_000, "train the vocabulary on at most this many bytes of text")

    def train(self, texts: list[str], specials: list[str]) -> Any:
        """Of a plugin's kind: a trained `tokenizers.Tokenizer` whose first pieces are the specials."""
        raise NotImplementedError

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


@choice("word")
class Word(TextConfig):
    """Whole words; a Chinese or Japanese character is a word unless a segmenter finds longer ones."""

    min_frequency: int = option(1, "leave out words seen fewer times than this")
    size: int = option(30_000, "largest vocabulary, special tokens included; rarer words become <unk>")
    segmenter: Literal["none", "jieba", "spaces"] = option(
        "none", "how Chinese is cut: each character a word, by jieba, or at spaces only, as text that is cut already"
    )


@choice("char")
class Char(TextConfig):
    """Single characters, spaces included."""

    min_frequency: int = option(1, "leave out characters seen fewer times than this")


@choice("bpe")
class Bpe(TextConfig):
    """Byte-pair encoding of characters (Sennrich 2016, arXiv:1508.07909), with an end-of-word mark."""

    size: int = option(10_000, "vocabulary size, special tokens included")
    dropout: float = option(0.0, "BPE-dropout while training (arXiv:1910.13267); 0 is off")

    @property
    def sampling(self) -> dict[str, float]:
        return {"dropout": self.dropout} if self.dropout else {}


@choice("byte_bpe")
class ByteBpe(TextConfig):
    """Byte-pair encoding of UTF-8 bytes as in GPT-2: nothing is unknown, every space is kept."""

    size: int = option(10_000, "vocabulary size, special tokens and the 256 bytes included")
    dropout: float = option(0.0, "BPE-dropout while training (arXiv:1910.13267); 0 is off")

    @property
    def sampling(self) -> dict[str, float]:
        return {"dropout": self.dropout} if self.dropout else {}


@choice("wordpiece")
class WordPiece(TextConfig):
    """Greedy longest match with `##` continuations, as in BERT; trained by frequency, not likelihood."""

    size: int = option(10_000, "vocabulary size, special tokens included")


@choice("unigram")
class Unigram(TextConfig):
    """The most probable segmentation under a unigram model of pieces (Kudo 2018, arXiv:1804.10959)."""

    size: int = option(8_000, "vocabulary size, special tokens included")
    alpha: float = option(0.0, "while training, sample segmentations by p(x)^alpha; 0 is off")
    coverage: float = option(1.0, "the share of the text's characters that have pieces; the rarest become <unk>")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.coverage <= 1:
            raise ValueError(f"coverage must be above 0 and at most 1, not {self.coverage}")

    @property
    def sampling(self) -> dict[str, float]:
        return {"alpha": self.alpha} if self.alpha else {}


@choice("sentencepiece")
class SentencePiece(TextConfig):
    """An existing SentencePiece `.model` (Unigram or BPE); nothing is trained."""

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


@choice("marian")
class Marian(TextConfig):
    """OPUS-MT's two SentencePiece models with one table of ids; nothing is trained."""

    one_tokenizer: ClassVar[bool] = False

    path: str = option("", "the folder of source.spm, target.spm and vocab.json")

    def files(self) -> list[str]:
        return [f"{self.path}/{name}" for name in ("source.spm", "target.spm", "vocab.json")]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise ValueError("path must name the folder of source.spm, target.spm and vocab.json")


@choice("bert")
class BertPieces(TextConfig):
    """WordPiece with BERT's own cleaning, which sets punctuation apart, and its [CLS] [SEP] [MASK]."""

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
