"""Our vocabularies as tokenizers that Hugging Face reads, where theirs can do what ours do.

OPUS-MT's own files stay what they were. Other kinds become a `tokenizer.json`: what we do in Python before the pieces
are looked up is said there as normalisers. Moses' rules and jieba's dictionary cannot be said so.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Inner

from regard import config
from regard.errors import RegardError
from regard.interop.writing import write_json
from regard.tasks.texts import TOKENIZER
from regard.tasks.translator import languages_of
from regard.tasks.vocabulary import Vocabulary
from regard.text import Tokenizer
from regard.text.stages import CJK

if TYPE_CHECKING:
    from regard.recipe import Recipe

TEXT = "text.yaml"  # beside our own form of the vocabulary: the recipe's sections that say how text was read
Marks = Literal["none", "end", "around"]  # what a row has besides its text: nothing, </s>, or [CLS] and [SEP]
NONE = "no tokenizer that Hugging Face reads: {why}; tokenizer/ has regard's own"


def write_tokenizer(vocabulary: Vocabulary, recipe: "Recipe", origin: Path, out: Path) -> str:
    """Their files beside the model, ours in `tokenizer/`; says in words what is there."""
    vocabulary.save(_sections(recipe, out))
    if recipe.text.kind == "marian" and (origin / "source.spm").is_file():
        return _opus(origin, recipe, out)
    why = unlike(vocabulary.source) or unlike(vocabulary.target)
    if why:
        return NONE.format(why=why)
    _fast(vocabulary.source, out)
    if vocabulary.shared:
        return "its tokenizer is AutoTokenizer's"
    _fast(vocabulary.target, out / "target")
    return "the source's tokenizer is AutoTokenizer's, the target's is in target/"


def write_one(tokenizer: Tokenizer, recipe: "Recipe", out: Path, marks: Marks) -> str:
    """The same for a model that reads texts of one kind."""
    tokenizer.save(_sections(recipe, out) / TOKENIZER.name)
    why = unlike(tokenizer)
    if why:
        return NONE.format(why=why)
    _fast(tokenizer, out, marks)
    return "its tokenizer is AutoTokenizer's"


def _sections(recipe: "Recipe", out: Path) -> Path:
    """The folder of our own form, which says how text was read."""
    own = out / TOKENIZER.parent
    own.mkdir()
    (own / TEXT).write_text(config.dump({"task": recipe.task, "text": recipe.text}), encoding="utf-8")
    return own


def read_one(origin: Path, entries: int) -> tuple[Tokenizer, dict[str, Any]] | None:
    """What `write_one` wrote: the vocabulary, and the sections of the recipe; None in a folder of another's."""
    path = origin / TOKENIZER.parent / TEXT
    if not path.is_file():
        return None
    tokenizer = Tokenizer.load(origin / TOKENIZER)
    check_size(tokenizer, entries, origin)
    return tokenizer, config.read(path).plain()


def check_size(tokenizer: Tokenizer, entries: int, origin: Path) -> None:
    if tokenizer.size != entries:
        raise RegardError(f"{origin}: the vocabulary has {tokenizer.size:,} pieces, and config.json says {entries:,}")


def _opus(origin: Path, recipe: "Recipe", out: Path) -> str:
    for path in sorted([*origin.glob("*.spm"), *origin.glob("*vocab.json")]):
        shutil.copy(path, out / path.name)
    separate = (origin / "target_vocab.json").is_file()
    languages = dict(zip(("source_lang", "target_lang"), languages_of(recipe, origin), strict=True))
    write_json(
        out / "tokenizer_config.json", languages | {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    )
    return "its tokenizer is MarianTokenizer, as it came"


# --- tokenizer.json -------------------------------------------------------------------------------------------------


def unlike(tokenizer: Tokenizer) -> str | None:
    """Why a vocabulary cannot be said as a `tokenizer.json`, if it cannot."""
    if tokenizer.stages.moses:
        return "it cuts text by Moses' rules"
    if tokenizer.options.get("jieba"):
        return "it cuts Chinese by jieba's dictionary"
    return None if tokenizer.kind in FORMS else f"its kind is {tokenizer.kind}"


def _fast(tokenizer: Tokenizer, out: Path, marks: Marks = "end") -> None:
    out.mkdir(exist_ok=True)
    inner = as_theirs(tokenizer, marks)
    inner.save(str(out / "tokenizer.json"))
    special = dict(tokenizer.special)
    if marks == "around":
        special |= {"cls": tokenizer.bos, "sep": tokenizer.eos}
    said: dict[str, Any] = {f"{name}_token": tokenizer.pieces[i] for name, i in special.items()}
    segments = ["token_type_ids"] if marks == "around" else []  # GPT-2 would take such for ids of words
    said["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    if tokenizer.kind in ("gpt2", "bert"):
        inner.model.save(str(out))  # vocab.json and merges.txt, or vocab.txt, as they came
    if tokenizer.kind == "bert":
        said["do_lower_case"] = tokenizer.document["normalizer"]["lowercase"]
    write_json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **said})


def as_theirs(tokenizer: Tokenizer, marks: Marks = "end") -> Inner:
    """A tokenizer of `tokenizers` that takes raw text, and puts the marks around it."""
    inner = Inner.from_str(json.dumps(tokenizer.document))
    form = _at_spaces if tokenizer.options.get("spaces") else FORMS[tokenizer.kind]
    form(inner, _stages(tokenizer))
    special = [AddedToken(tokenizer.pieces[i], normalized=False) for i in dict.fromkeys(tokenizer.special.values())]
    inner.add_special_tokens(special)
    begin, end = tokenizer.pieces[tokenizer.bos], tokenizer.pieces[tokenizer.eos]
    known = [(begin, tokenizer.bos), (end, tokenizer.eos)]
    if marks == "end":
        template = processors.TemplateProcessing(single=["$A", end], special_tokens=known[1:])
        inner.post_processor = processors.Sequence([template])
    elif marks == "around":
        row = [begin, "$A", end]
        inner.post_processor = processors.TemplateProcessing(row, [*row, "$B:1", f"{end}:1"], known)
    return inner


def _stages(tokenizer: Tokenizer) -> list[Any]:
    """regard.text.stages, as normalisers."""
    stages = tokenizer.stages
    made: list[Any] = []
    if stages.unicode != "none":
        made.append(normalizers.NFC() if stages.unicode == "nfc" else normalizers.NFKC())
    if stages.lower:
        made.append(normalizers.Lowercase())
    if stages.fold:
        made += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return made


def _end_marked(inner: Inner, stages: list[Any]) -> None:
    inner.normalizer = normalizers.Sequence([*stages, normalizers.Replace(Regex(r"(?<=.)\z"), " ")])
    inner.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)])


def _start_marked(inner: Inner, stages: list[Any]) -> None:
    inner.normalizer = normalizers.Sequence([*stages, normalizers.Prepend(" ")])
    inner.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def _bytes(inner: Inner, stages: list[Any]) -> None:
    inner.normalizer = normalizers.Sequence(stages)
    inner.decoder = decoders.ByteLevel()


def _characters(inner: Inner, stages: list[Any]) -> None:
    inner.normalizer = normalizers.Sequence(stages)
    inner.decoder = decoders.Fuse()


def _at_spaces(inner: Inner, stages: list[Any]) -> None:
    inner.normalizer = normalizers.Sequence(stages)


def _spaced(inner: Inner, stages: list[Any]) -> None:
    """Words between spaces, and each Chinese or Japanese character by itself."""
    inner.normalizer = normalizers.Sequence(stages)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(f"[{CJK}]"), "isolated"), pre_tokenizers.WhitespaceSplit()]
    )


def _continued(inner: Inner, stages: list[Any]) -> None:
    _spaced(inner, stages)
    inner.decoder = decoders.WordPiece(prefix="##", cleanup=False)


def _by_bert(inner: Inner, stages: list[Any]) -> None:
    inner.decoder = decoders.WordPiece(prefix="##", cleanup=False)


FORMS: dict[str, Callable[[Inner, list[Any]], None]] = {
    "bpe": _end_marked,
    "unigram": _start_marked,
    "byte_bpe": _bytes,
    "char": _characters,
    "word": _spaced,
    "wordpiece": _continued,
    "gpt2": _bytes,
    "bert": _by_bert,
}
