"""Our vocabularies as tokenizers of the `tokenizers` library, which take raw text: the same ids, the same text again.

What we do in Python before and after the pieces are looked up becomes normalisers, pre-tokenizers and decoders there.
Moses' rules, jieba's dictionary and SentencePiece files cannot be expressed so. Knows no folder and no model.

Special tokens are spelled plainly (`</s>`), as other libraries expect. Ours are kept apart from text by spaces in their
names; here BPE has no merges that lead to them, Unigram cuts such text (`</`, `s>`), and a word that begins with such a
name is unknown.
"""

import copy
import json
import re
from collections.abc import Callable, Iterable
from typing import Literal

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.normalizers import Normalizer

from regard.text import Tokenizer
from regard.text.normaliser import CJK

Template = Literal["none", "end", "around"]  # special tokens that are added: none, </s>, or [CLS] and [SEP]


def tokenizer_unsupported_reason(tokenizer: Tokenizer) -> str | None:
    """Why `tokenizers` alone cannot do what a vocabulary does, if it cannot."""
    if tokenizer.normaliser.moses:
        return "it cuts text by Moses' rules"
    if tokenizer.options.get("jieba"):
        return "it cuts Chinese by jieba's dictionary"
    return None if tokenizer.kind in CONVERTERS else f"its kind is {tokenizer.kind}"


def token_strings(tokenizers: Iterable[Tokenizer]) -> list[list[str]]:
    """The tokens of each vocabulary by id, special tokens without the spaces around their names.

    All vocabularies spell a special token alike, so one keeps its spaces where a piece of any of them has its name.
    """
    pieces = [tokenizer.pieces for tokenizer in tokenizers]
    taken = set().union(*pieces)
    return [[bare if (bare := _bare(piece)) not in taken else piece for piece in vocabulary] for vocabulary in pieces]


def _bare(piece: str) -> str:
    return piece[1:-1] if len(piece) > 2 and piece[0] == piece[-1] == " " else piece


def build_tokenizer(
    tokenizer: Tokenizer, names: list[str], template: Template = "end", special: bool = True
) -> FastTokenizer:
    """A tokenizer of `tokenizers` with these token strings, that takes raw text and adds special tokens.

    `special` tokens are left out of decoded text, and found in text that spells them (unless switched off).
    """
    fast = FastTokenizer.from_str(_renamed(tokenizer, names))
    ids = list(dict.fromkeys(tokenizer.special.values()))
    cut = {"spaces": _at_spaces, "jieba": _segmented}
    convert = next((cut[name] for name in cut if tokenizer.options.get(name)), CONVERTERS[tokenizer.kind])
    convert(fast, _stages(tokenizer), [names[i] for i in (tokenizer.unk, *ids)])
    if special:
        fast.add_special_tokens([AddedToken(names[i], normalized=False) for i in ids])
    begin, end = names[tokenizer.bos], names[tokenizer.eos]
    known = [(begin, tokenizer.bos), (end, tokenizer.eos)]
    if template == "end":
        processor = processors.TemplateProcessing(single=["$A", end], special_tokens=known[1:])
        fast.post_processor = processors.Sequence([processor])
    elif template == "around":
        row = [begin, "$A", end]
        fast.post_processor = processors.TemplateProcessing(row, [*row, "$B:1", f"{end}:1"], known)
    return fast


def _renamed(tokenizer: Tokenizer, names: list[str]) -> str:
    """The JSON of a vocabulary with other names of its pieces."""
    document = copy.deepcopy(tokenizer.document)
    model, renamed = document["model"], dict(zip(tokenizer.pieces, names, strict=True))
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed[piece]: i for piece, i in model["vocab"].items()}
    else:
        model["vocab"] = [[renamed[piece], score] for piece, score in model["vocab"]]
    if model.get("unk_token") is not None:
        model["unk_token"] = renamed[model["unk_token"]]
    return json.dumps(document)


def _stages(tokenizer: Tokenizer) -> list[Normalizer]:
    """regard.text.normaliser, as normalisers; Moses' stage is not among them."""
    stages = tokenizer.normaliser
    steps: list[Normalizer] = []
    if stages.unicode != "none":
        steps.append(normalizers.NFC() if stages.unicode == "nfc" else normalizers.NFKC())
    if stages.lower:  # Python knows the sigma that ends a word, their lower case does not
        steps += [normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"), normalizers.Lowercase()]
    if stages.fold:
        steps += [normalizers.Replace(Regex(r"[\s\x1c-\x1f]+"), " "), normalizers.Strip()]
    return steps


# --- one for each kind; `special` is the name of what is unknown, then those of all special tokens -----------------


def _end_marked(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    fast.normalizer = normalizers.Sequence([*stages, normalizers.Replace(Regex(r"(?<=.)\z"), " ")])
    fast.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex(r" +\z"), "")])


def _start_marked(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    fast.normalizer = normalizers.Sequence([*stages, normalizers.Prepend(" ")])
    heads = [re.split(r"(?<=\W)(?=\w)", name, maxsplit=1) for name in _plain(special)]  # </ and s>
    if heads:
        cut = Regex("|".join(f"{re.escape(head)}(?={re.escape(''.join(rest))})" for head, *rest in heads))
        cuts = pre_tokenizers.Split(cut, "merged_with_previous")
        fast.pre_tokenizer = pre_tokenizers.Sequence([fast.pre_tokenizer, cuts])
    fast.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex(r"\A +| +\z"), "")])


def _bytes(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    fast.normalizer = normalizers.Sequence(stages)
    fast.decoder = decoders.ByteLevel()


def _characters(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    fast.normalizer = normalizers.Sequence(stages)
    fast.decoder = decoders.Fuse()


def _at_spaces(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    fast.normalizer = normalizers.Sequence([*stages, *_unknown(special, r"\s")])


def _segmented(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    """Words between spaces, which jieba has put there."""
    _at_spaces(fast, stages, special)
    _joined(fast, " ")


def _spaced(fast: FastTokenizer, stages: list[Normalizer], special: list[str], prefix: str = " ") -> None:
    """Words between spaces, and each Chinese or Japanese character by itself; none begins with the prefix."""
    fast.normalizer = normalizers.Sequence([*stages, *_unknown(special, rf"\s{CJK}")])
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(f"[{CJK}]"), "isolated"), pre_tokenizers.WhitespaceSplit()]
    )
    _joined(fast, prefix)


def _continued(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    _spaced(fast, stages, special, "##")


def _by_bert(fast: FastTokenizer, stages: list[Normalizer], special: list[str]) -> None:
    _joined(fast, "##")


def _joined(fast: FastTokenizer, prefix: str) -> None:
    """Words with spaces between them, except between two CJK characters."""
    gap = decoders.Replace(Regex(f"(?<=[{CJK}]) (?=[{CJK}])"), "")
    fast.decoder = decoders.Sequence([decoders.WordPiece(prefix, cleanup=False), decoders.Fuse(), gap])


def _unknown(special: list[str], around: str) -> list[Normalizer]:
    """A word that begins with the name of a special token becomes the unknown one."""
    names = "|".join(map(re.escape, _plain(special)))
    word = Regex(f"(?<![^{around}])(?:{names})[^{around}]*")
    return [normalizers.Replace(word, special[0])] if names and special[0] in _plain(special) else []


def _plain(special: list[str]) -> list[str]:
    """Those that text can spell."""
    return [name for name in dict.fromkeys(special) if " " not in name]


CONVERTERS: dict[str, Callable[[FastTokenizer, list[Normalizer], list[str]], None]] = {
    "bpe": _end_marked,
    "unigram": _start_marked,
    "byte_bpe": _bytes,
    "char": _characters,
    "word": _spaced,
    "wordpiece": _continued,
    "gpt2": _bytes,
    "bert": _by_bert,
}
