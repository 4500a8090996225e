"""A checkpoint of Hugging Face's GPT-2 as a model folder, a language model that writes; and such a model as theirs."""

from pathlib import Path
from typing import Any

from regard import config
from regard.examples.preparing import TOKENIZER
from regard.interop import gpt2
from regard.interop.checkpoint import Checkpoint, Imported
from regard.interop.choices import reasons, refuse
from regard.interop.hf_tokenizer import check_size, read_one, write_one
from regard.io.atomic import write_json
from regard.io.tensors import weights_of, write_tensors
from regard.models.lm import LanguageModelConfig
from regard.predict.generation import TextGenerator
from regard.recipe import Recipe
from regard.text import Tokenizer
from regard.text.pretrained import from_gpt2

# --- in -------------------------------------------------------------------------------------------------------------


def read(checkpoint: Checkpoint) -> Imported:
    origin, theirs = checkpoint.folder, checkpoint.config
    model = gpt2.config_here(theirs, origin)
    entries = int(theirs.get("vocab_size", 50_257))
    tokenizer, said = read_one(origin, entries) or _vocabulary(checkpoint, entries)
    recipe = config.parse(Recipe, config.wrap({**said, "data": {}, "model": config.to_plain(model)}, str(origin)))
    own = weights_of(model.build(entries))
    weights = gpt2.weights_here(checkpoint.tensors(), model, own, origin)
    return Imported(recipe, weights, lambda out: tokenizer.save(out / TOKENIZER))


def _vocabulary(checkpoint: Checkpoint, entries: int) -> tuple[Tokenizer, dict[str, Any]]:
    """GPT-2's own, and the sections of the recipe that speak of it."""
    origin = checkpoint.folder
    tokenizer = from_gpt2(origin / "vocab.json", origin / "merges.txt")
    check_size(tokenizer, entries, origin)
    task = {"kind": "lm", "length": checkpoint.config.get("n_positions", 1024)}
    return tokenizer, {"task": task, "text": {"kind": "byte_bpe", "size": entries}}


# --- out ------------------------------------------------------------------------------------------------------------


def write(generator: TextGenerator, run: Path, out: Path) -> str:
    """A folder that Hugging Face reads as a GPT2LMHeadModel; says what it has for a tokenizer."""
    model, tokenizer = generator.recipe.model, generator.tokenizer
    refuse(reasons(model, {"kind": ["lm"]}, "GPT-2"), run, "Hugging Face")
    assert isinstance(model, LanguageModelConfig)
    end = generator.document_encoder.end
    marks = {"bos_token_id": tokenizer.bos, "eos_token_id": end, "pad_token_id": tokenizer.pad}
    write_json(out / "config.json", gpt2.config_there(model, tokenizer.size) | marks)
    never = [[i] for i in generator.symbols.never]
    write_json(out / "generation_config.json", marks | ({"bad_words_ids": never} if never else {}))
    weights = gpt2.weights_there(weights_of(generator.model), model, run)
    write_tensors(out / "model.safetensors", weights, {"format": "pt"})
    return write_one(tokenizer, generator.recipe, out, "none")
