"""Our vocabularies as tokenizers that Hugging Face reads, where theirs can do what ours do.

OPUS-MT's own files stay what they were. Other kinds become a `tokenizer.json`: what we do in Python before the pieces
are looked up is said there as normalisers. Moses' rules and jieba's dictionary cannot be said so.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Inner

from regard.config import dump
from regard.tasks.translator import languages_of
from regard.tasks.vocabulary import Vocabulary
from regard.text import Tokenizer
from regard.text.stages import CJK

if TYPE_CHECKING:
    from regard.recipe import Recipe

NONE = "no tokenizer that Hugging Face reads: {why}; tokenizer/ has regard's own"


def write_tokenizer(vocabulary: Vocabulary, recipe: "Recipe", origin: Path, out: Path) -> str:
    """Their files beside the model, ours in `tokenizer/`; says in words what is there."""
    own = out / "tokenizer"
    own.mkdir()
    vocabulary.save(own)
    (own / "text.yaml").write_text(dump({"task": recipe.task, "text": recipe.text}), encoding="utf-8")
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


def _opus(origin: Path, recipe: "Recipe", out: Path) -> str:
    for path in sorted([*origin.glob("*.spm"), *origin.glob("*vocab.json")]):
        shutil.copy(path, out / path.name)
    separate = (origin / "target_vocab.json").is_file()
    languages = dict(zip(("source_lang", "target_lang"), languages_of(recipe, origin), strict=True))
    _write(
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


def _fast(tokenizer: Tokenizer, out: Path) -> None:
    out.mkdir(exist_ok=True)
    as_theirs(tokenizer).save(str(out / "tokenizer.json"))
    names = {f"{name}_token": tokenizer.pieces[tokenizer.special[name]] for name in ("pad", "unk", "bos", "eos")}
    _write(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})


def as_theirs(tokenizer: Tokenizer) -> Inner:
    """A tokenizer of `tokenizers` that takes raw text, and puts the end after it."""
    inner = Inner.from_str(json.dumps(tokenizer.document))
    FORMS[tokenizer.kind](inner, _stages(tokenizer))
    special = [AddedToken(tokenizer.pieces[i], normalized=False) for i in dict.fromkeys(tokenizer.special.values())]
    inner.add_special_tokens(special)
    end = tokenizer.pieces[tokenizer.eos]
    inner.post_processor = processors.Sequence(
        [processors.TemplateProcessing(single=["$A", end], special_tokens=[(end, tokenizer.eos)])]
    )
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


def _spaced(inner: Inner, stages: list[Any]) -> None:
    """Words between spaces, and each Chinese or Japanese character by itself."""
    inner.normalizer = normalizers.Sequence(stages)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(f"[{CJK}]"), "isolated"), pre_tokenizers.WhitespaceSplit()]
    )


def _continued(inner: Inner, stages: list[Any]) -> None:
    _spaced(inner, stages)
    inner.decoder = decoders.WordPiece(prefix="##", cleanup=False)


FORMS: dict[str, Callable[[Inner, list[Any]], None]] = {
    "bpe": _end_marked,
    "unigram": _start_marked,
    "byte_bpe": _bytes,
    "char": _characters,
    "word": _spaced,
    "wordpiece": _continued,
}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
