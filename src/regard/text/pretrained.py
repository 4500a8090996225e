"""Existing vocabularies as Tokenizers: GPT-2's, BERT's, SentencePiece `.model` files. Nothing is trained."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Inner

from regard.errors import RegardError
from regard.io.files import read_json, read_text
from regard.reporting import Json
from regard.text import spm
from regard.text.normaliser import TextNormaliser
from regard.text.piece_formats import special_piece
from regard.text.tokenizer import Tokenizer, check_parts

_AS_IT_IS = TextNormaliser(fold=False)
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def from_gpt2(vocab_json: str | Path, merges_txt: str | Path) -> Tokenizer:
    """GPT-2's byte-level BPE. Its one special token, <|endoftext|>, begins, ends and pads."""
    vocabulary = read_json(vocab_json)
    end = vocabulary.get("<|endoftext|>")
    if not all(type(i) is int and 0 <= i < 1 << 31 for i in (end, *vocabulary.values())):
        raise RegardError(f"{vocab_json}: not a GPT-2 vocab.json (ids of pieces, with <|endoftext|>)")
    rows = [line for line in read_text(merges_txt).split("\n") if line and not line.startswith("#version")]
    if not all(line.count(" ") == 1 for line in rows):
        raise RegardError(f"{merges_txt}: not a GPT-2 merges.txt (two pieces on every line)")
    merges = [(left, right) for left, right in (line.split(" ") for line in rows)]
    try:
        inner = Inner(models.BPE(vocabulary, merges))
    except Exception as error:  # `tokenizers` raises plain Exception
        raise RegardError(f"{merges_txt}: does not belong to {vocab_json} ({error})") from None
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    document = _document(inner, vocab_json)
    return Tokenizer(document, "gpt2", _AS_IT_IS, dict.fromkeys(("pad", "unk", "bos", "eos"), end))


def _document(inner: Inner, origin: object) -> Json:
    """The JSON of a tokenizer that somebody else made; what could not be read again is refused now."""
    document: Json = json.loads(inner.to_str())
    try:
        check_parts(document)
    except ValueError as error:
        raise RegardError(f"{origin}: a vocabulary that is not read ({error})") from None
    return document


def from_bert(vocab_txt: str | Path, lower: bool = True) -> Tokenizer:
    """BERT's WordPiece. [CLS] is `bos` and `cls`, [SEP] is `eos` and `sep`; `mask` is there too."""
    return bert_tokenizer(read_bert_vocabulary(vocab_txt), lower, str(vocab_txt))


def read_bert_vocabulary(vocab_txt: str | Path) -> list[str]:
    """The pieces in the order of their ids: a line each, whose last may have no end."""
    lines = read_text(vocab_txt).split("\n")
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def bert_tokenizer(pieces: Sequence[str], lower: bool, origin: str, sample: dict[str, int] | None = None) -> Tokenizer:
    """BERT's tokenizer with these pieces, in the order of their ids."""
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    try:
        pad, unk, cls, sep, mask = (vocabulary[name] for name in BERT_SPECIALS)
    except KeyError as error:
        raise RegardError(f"{origin}: not a BERT vocab.txt; it lacks {error.args[0]}") from None
    inner = Inner(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lower)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = {"pad": pad, "unk": unk, "bos": cls, "eos": sep, "cls": cls, "sep": sep, "mask": mask}
    return Tokenizer(_document(inner, origin), "bert", _AS_IT_IS, special, sample=sample)


def from_sentencepiece(path: str | Path, normaliser: TextNormaliser = _AS_IT_IS) -> Tokenizer:
    """A `.model`, Unigram or BPE: ids are SentencePiece's. A missing <pad>, <s> or </s> is added last."""
    model = spm.read_sentencepiece(str(path))
    never = (spm.UNKNOWN, spm.CONTROL, spm.UNUSED, spm.BYTE)  # such a piece is not found in text
    names = [special_piece(text) if kind in never else text for text, _, kind in model.pieces]
    special = {"pad": model.pad, "unk": model.unk, "bos": model.bos, "eos": model.eos}
    for name, text in (("pad", "<pad>"), ("bos", "<s>"), ("eos", "</s>")):
        if special[name] < 0:
            special[name] = len(names)
            names.append(special_piece(text))
    scores = [score for _, score, _ in model.pieces] + [0.0] * (len(names) - len(model.pieces))
    if model.model_type == spm.UNIGRAM:
        inner = Inner(models.Unigram(list(zip(names, scores, strict=True)), unk_id=model.unk, byte_fallback=False))
    else:
        inner = Inner(_bpe(model, names, scores))
    user_defined = [text for text, _, kind in model.pieces if kind == spm.USER_DEFINED]
    inner.add_tokens([AddedToken(text, normalized=False) for text in user_defined])
    format_options = {
        "charsmap": base64.b64encode(model.charsmap).decode("ascii"),
        "dummy_prefix": model.dummy_prefix,
        "remove_extra_spaces": model.remove_extra_spaces,
        "escape": model.escape,
        "suffix": model.suffix,
        "user_defined": user_defined,
    }
    byte_ids = [names.index(special_piece(f"<0x{b:02X}>")) for b in range(256)] if model.byte_fallback else None
    return Tokenizer(_document(inner, path), "sentencepiece", normaliser, special, format_options, byte_ids=byte_ids)


def _bpe(model: spm.SentencePieceModel, names: list[str], scores: list[float]) -> models.BPE:
    """SentencePiece joins the neighbours whose union scores highest: each cut of a piece is a merge."""
    ids = {name: i for i, name in enumerate(names)}
    normal = [i for i, (_, _, kind) in enumerate(model.pieces) if kind == spm.NORMAL]
    merges = [
        (names[i][:cut], names[i][cut:])
        for i in sorted(normal, key=lambda i: -scores[i])
        for cut in range(1, len(names[i]))
        if names[i][:cut] in ids and names[i][cut:] in ids
    ]
    return models.BPE(ids, merges, unk_token=names[model.unk], fuse_unk=True)
