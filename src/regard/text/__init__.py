"""Text and ids: vocabularies of every kind, trained or loaded, behind one Tokenizer."""

from regard.text.config import Bpe, ByteBpe, Char, SentencePiece, TextConfig, Unigram, Word, WordPiece
from regard.text.pretrained import from_bert, from_gpt2, from_sentencepiece
from regard.text.sampling import Sampler, WordCorpus
from regard.text.tokenizer import Tokenizer
from regard.text.training import train_tokenizer

__all__ = [
    "Bpe",
    "ByteBpe",
    "Char",
    "Sampler",
    "SentencePiece",
    "TextConfig",
    "Tokenizer",
    "Unigram",
    "Word",
    "WordCorpus",
    "WordPiece",
    "from_bert",
    "from_gpt2",
    "from_sentencepiece",
    "train_tokenizer",
]
