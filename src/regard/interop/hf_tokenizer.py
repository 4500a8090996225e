"""Our vocabularies as tokenizers that Hugging Face reads, where theirs can do what ours do.

OPUS-MT's own files stay what they were. Other kinds become a `tokenizer.json`, where `tokenizers_file` can make one.
"""

import shutil
from pathlib import Path
from typing import Any

from regard import config
from regard.errors import RegardError
from regard.examples.preparing import TOKENIZER
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import Vocabulary
from regard.interop.tokenizers_file import Marks, build, spellings, unsupported_reason
from regard.io.atomic import write_json
from regard.predict.translation import task_languages
from regard.text import Tokenizer

TEXT = "text.yaml"  # beside our own form of the vocabulary: the recipe's sections that say how text was read
NONE = "no tokenizer that Hugging Face reads: {why}; tokenizer/ has regard's own"


def write_tokenizer(vocabulary: Vocabulary, recipe: RecipeLike, origin: Path, out: Path) -> str:
    """Their files beside the model, ours in `tokenizer/`; says in words what is there."""
    vocabulary.save(_sections(recipe, out))
    if recipe.text.kind == "marian" and (origin / "source.spm").is_file():
        return _opus(origin, recipe, out)
    why = unsupported_reason(vocabulary.source) or unsupported_reason(vocabulary.target)
    if why:
        return NONE.format(why=why)
    names = spellings(vocabulary)
    _fast(vocabulary.source, names[0], out)
    if vocabulary.shared:
        return "its tokenizer is AutoTokenizer's"
    _fast(vocabulary.target, names[1], out / "target")
    return "the source's tokenizer is AutoTokenizer's, the target's is in target/"


def write_one(tokenizer: Tokenizer, recipe: RecipeLike, out: Path, marks: Marks) -> str:
    """The same for a model that reads texts of one kind."""
    tokenizer.save(_sections(recipe, out) / TOKENIZER.name)
    why = unsupported_reason(tokenizer)
    if why:
        return NONE.format(why=why)
    _fast(tokenizer, spellings([tokenizer])[0], out, marks)
    return "its tokenizer is AutoTokenizer's"


def _sections(recipe: RecipeLike, out: Path) -> Path:
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


def _opus(origin: Path, recipe: RecipeLike, out: Path) -> str:
    for path in sorted([*origin.glob("*.spm"), *origin.glob("*vocab.json")]):
        shutil.copy(path, out / path.name)
    separate = (origin / "target_vocab.json").is_file()
    languages = dict(zip(("source_lang", "target_lang"), task_languages(recipe, origin), strict=True))
    write_json(
        out / "tokenizer_config.json", languages | {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    )
    return "its tokenizer is MarianTokenizer, as it came"


def _fast(tokenizer: Tokenizer, names: list[str], out: Path, marks: Marks = "end") -> None:
    out.mkdir(exist_ok=True)
    inner = build(tokenizer, names, marks)
    inner.save(str(out / "tokenizer.json"))
    special = dict(tokenizer.special)
    if marks == "around":
        special |= {"cls": tokenizer.bos, "sep": tokenizer.eos}
    said: dict[str, Any] = {f"{name}_token": names[i] for name, i in special.items()}
    segments = ["token_type_ids"] if marks == "around" else []  # GPT-2 would take such for ids of words
    said["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    if marks == "end":  # a text to translate that spells </s> is text; prompts of the others may name special tokens
        said["split_special_tokens"] = True
    if tokenizer.kind in ("gpt2", "bert"):
        inner.model.save(str(out))  # vocab.json and merges.txt, or vocab.txt, as they came
    if tokenizer.kind == "bert":
        said["do_lower_case"] = tokenizer.document["normalizer"]["lowercase"]
    write_json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **said})
