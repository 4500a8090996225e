"""Our vocabularies as tokenizers that Hugging Face reads, where `tokenizers` can express them.

OPUS-MT's own files stay what they were. Other kinds become a `tokenizer.json`, where `tokenizers_file` can build one.
"""

import shutil
from pathlib import Path

from regard import config
from regard.errors import RegardError
from regard.examples.preparing import TOKENIZER
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import Vocabulary
from regard.interop.tokenizers_file import Template, build_tokenizer, token_strings, tokenizer_unsupported_reason
from regard.io.files import write_json
from regard.predict.translation import task_languages
from regard.reporting import Json
from regard.text import Tokenizer

SECTIONS = "text.yaml"  # beside our own vocabulary: the recipe's sections about task and text
NO_TOKENIZER = "no tokenizer that Hugging Face reads: {why}; tokenizer/ has regard's own"


def write_tokenizers(vocabulary: Vocabulary, recipe: RecipeLike, origin: Path, out: Path) -> str:
    """Source and target: Hugging Face's files beside the model, ours in `tokenizer/`; returns a summary."""
    vocabulary.save(_write_sections(recipe, out))
    if recipe.text.kind == "marian" and (origin / "source.spm").is_file():
        return _write_marian(origin, recipe, out)
    why = tokenizer_unsupported_reason(vocabulary.source) or tokenizer_unsupported_reason(vocabulary.target)
    if why:
        return NO_TOKENIZER.format(why=why)
    names = token_strings(vocabulary)
    _write_fast(vocabulary.source, names[0], out)
    if vocabulary.shared:
        return "its tokenizer is AutoTokenizer's"
    _write_fast(vocabulary.target, names[1], out / "target")
    return "the source's tokenizer is AutoTokenizer's, the target's is in target/"


def write_tokenizer(tokenizer: Tokenizer, recipe: RecipeLike, out: Path, template: Template) -> str:
    """The same for a model with one vocabulary."""
    tokenizer.save(_write_sections(recipe, out) / TOKENIZER.name)
    why = tokenizer_unsupported_reason(tokenizer)
    if why:
        return NO_TOKENIZER.format(why=why)
    _write_fast(tokenizer, token_strings([tokenizer])[0], out, template)
    return "its tokenizer is AutoTokenizer's"


def _write_sections(recipe: RecipeLike, out: Path) -> Path:
    """The folder of our own vocabulary, with the recipe's sections about task and text."""
    own = out / TOKENIZER.parent
    own.mkdir()
    (own / SECTIONS).write_text(config.dump_yaml({"task": recipe.task, "text": recipe.text}), encoding="utf-8")
    return own


def read_tokenizer(origin: Path, vocab_size: int) -> tuple[Tokenizer, Json] | None:
    """What `write_tokenizer` wrote: the vocabulary, and the sections of the recipe; None in other folders."""
    path = origin / TOKENIZER.parent / SECTIONS
    if not path.is_file():
        return None
    tokenizer = Tokenizer.load(origin / TOKENIZER)
    check_vocab_size(tokenizer, vocab_size, origin)
    return tokenizer, read_sections(path)


def read_sections(path: Path) -> Json:
    """The recipe's sections about task and text that `_write_sections` wrote."""
    sections = config.read_yaml(path).plain()
    if not isinstance(sections, dict) or not all(isinstance(sections.get(name), dict) for name in ("task", "text")):
        raise RegardError(f"{path}: not the sections task and text of a recipe")
    return sections


def check_vocab_size(tokenizer: Tokenizer, vocab_size: int, origin: Path) -> None:
    if tokenizer.size != vocab_size:
        raise RegardError(
            f"{origin}: the vocabulary has {tokenizer.size:,} pieces, and config.json says {vocab_size:,}"
        )


def _write_marian(origin: Path, recipe: RecipeLike, out: Path) -> str:
    for path in sorted([*origin.glob("*.spm"), *origin.glob("*vocab.json")]):
        shutil.copy(path, out / path.name)
    separate = (origin / "target_vocab.json").is_file()
    languages = dict(zip(("source_lang", "target_lang"), task_languages(recipe, origin), strict=True))
    write_json(
        out / "tokenizer_config.json", languages | {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    )
    return "its tokenizer is MarianTokenizer, as it came"


def _write_fast(tokenizer: Tokenizer, names: list[str], out: Path, template: Template = "end") -> None:
    out.mkdir(exist_ok=True)
    fast = build_tokenizer(tokenizer, names, template)
    fast.save(str(out / "tokenizer.json"))
    special = dict(tokenizer.special)
    if template == "around":
        special |= {"cls": tokenizer.bos, "sep": tokenizer.eos}
    tokenizer_config: dict[str, object] = {f"{name}_token": names[i] for name, i in special.items()}
    segments = ["token_type_ids"] if template == "around" else []  # GPT-2 would take them for token ids
    tokenizer_config["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    if template == "end":  # a text to translate that spells </s> is text; prompts of the others may name special tokens
        tokenizer_config["split_special_tokens"] = True
    if tokenizer.kind in ("gpt2", "bert"):
        fast.model.save(str(out))  # vocab.json and merges.txt, or vocab.txt, as they came
    if tokenizer.kind == "bert":
        tokenizer_config["do_lower_case"] = tokenizer.document["normalizer"]["lowercase"]
    write_json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer_config})
