"""OPUS-MT folders as model folders, and translation models as folders that Hugging Face reads."""

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import config
from regard.decoding import Beam
from regard.errors import RegardError
from regard.examples.vocabulary import Vocabulary
from regard.interop import marian
from regard.interop.checkpoint import Checkpoint, Imported
from regard.interop.choices import reasons, refuse
from regard.interop.hf_tokenizer import TEXT, write_tokenizer
from regard.interop.stream import permuted, sines_first
from regard.io import run_folder as folder
from regard.io.atomic import write_json
from regard.io.tensors import weights_of, write_tensors
from regard.models.transformer import TransformerConfig
from regard.nn.attention import SharedQueryKey
from regard.predict.translation import Translator
from regard.recipe import Recipe
from regard.text.marian import SPM, MarianSpecials, from_marian, read_id_table

TOKENIZER = "tokenizer"  # in a model folder, and in one that was exported: the vocabulary as regard keeps it
MATRICES = ("query", "key_value")
TABLES = {"source": "vocab.json", "target": "target_vocab.json"}


# --- in -------------------------------------------------------------------------------------------------------------


def read(checkpoint: Checkpoint, home: Path) -> Imported:
    """The model of a Marian checkpoint. `home` is where its folder will be."""
    origin, theirs = checkpoint.folder, checkpoint.config
    tensors = marian.without_positions(checkpoint.tensors(), origin)
    model = marian.read_model(theirs, "final_logits_bias" in tensors, origin)
    vocabulary, files, said = _vocabulary(checkpoint)
    if files:
        said["text"] = {"kind": "marian", "path": str((home / TOKENIZER).absolute()), "shared": model.share == "all"}
    recipe = config.parse(
        Recipe,
        config.wrap(
            {
                **said,
                "data": {"filters": {"max_length": theirs.get("max_position_embeddings", 512) - 1}},
                "model": config.to_plain(model),
                "decoding": marian.read_decoding(theirs | checkpoint.json("generation_config.json", {})),
            },
            str(origin),
        ),
    )
    own = weights_of(model.build(vocabulary.source.size, vocabulary.target.size))
    weights = marian.key_map(model.share).to_ours(tensors, own, origin)
    return Imported(recipe, weights, lambda out: _save(vocabulary, files, out / TOKENIZER))


def _save(vocabulary: Vocabulary, files: list[Path], place: Path) -> None:
    """With the files of their tokenizer as they are."""
    place.mkdir()
    vocabulary.save(place)
    for path in files:
        shutil.copy(path, place / path.name)


def _vocabulary(checkpoint: Checkpoint) -> tuple[Vocabulary, list[Path], dict[str, Any]]:
    """The two tokenizers, the files they come from, and the sections of the recipe that speak of them."""
    origin, theirs = checkpoint.folder, checkpoint.config
    if (origin / TOKENIZER / TEXT).is_file():  # exported by regard
        said = config.read(origin / TOKENIZER / TEXT).plain()
        languages = (said["task"]["source"], said["task"]["target"])
        vocabulary = Vocabulary.load(origin / TOKENIZER, languages)
        _check_sizes(theirs, [side.size for side in vocabulary], origin)
        return vocabulary, [], said
    about = checkpoint.json("tokenizer_config.json", {})
    separate = bool(about.get("separate_vocabs"))
    names = {side: TABLES[side if separate else "source"] for side in SPM}
    missing = [name for name in dict.fromkeys((*SPM.values(), *names.values())) if not checkpoint.has(name)]
    if missing:
        raise RegardError(f"{origin}: the vocabulary is not whole ({', '.join(missing)} not there)")
    unk = about.get("unk_token", "<unk>")
    pad, eos, start = (theirs[key] for key in marian.MARKS)
    marks = MarianSpecials(pad, eos, start, unk["content"] if isinstance(unk, dict) else unk)
    languages = (about.get("source_lang") or "en", about.get("target_lang") or "en")
    tables = [read_id_table(origin / name) for name in names.values()]
    _check_sizes(theirs, list(map(len, tables)), origin)
    made = [
        from_marian(origin / name, table, marks, language)
        for name, table, language in zip(SPM.values(), tables, languages, strict=True)
    ]
    files = [origin / name for name in dict.fromkeys((*SPM.values(), *names.values()))]
    task = {"kind": "translation", "source": languages[0], "target": languages[1]}
    return Vocabulary(made[0], made[1], shared=False), files, {"task": task}


def _check_sizes(theirs: dict[str, Any], sizes: list[int], origin: Path) -> None:
    for key, size in zip(("vocab_size", "decoder_vocab_size"), sizes, strict=True):
        said = theirs.get(key) or theirs["vocab_size"]
        if said != size:
            raise RegardError(
                f"{origin}: the vocabulary does not match: {size:,} pieces, where {key} in config.json is {said:,}"
            )


# --- out ------------------------------------------------------------------------------------------------------------


def write(translator: Translator, run: Path, out: Path) -> str:
    """A folder that Hugging Face reads as a Marian model; says what it has for a tokenizer."""
    recipe, vocabulary = translator.recipe, translator.vocabulary
    model = recipe.model
    found = reasons(model, marian.HAS, "Marian")
    refuse(found or marian.more_reasons(model), run, "Hugging Face")  # type: ignore[arg-type]
    assert isinstance(model, TransformerConfig)
    weights = marian.key_map(model.share).to_theirs(_weights(translator, model), run)
    write_tensors(out / "model.safetensors", weights, {"format": "pt"})
    target = vocabulary.target
    marks = dict(zip(marian.MARKS, (target.pad, target.eos, target.bos), strict=True))
    longest = recipe.data.filters.max_length
    places = max(512, longest + 1, recipe.decoding.limit(longest) + 1)
    sizes = (vocabulary.source.size, vocabulary.target.size)
    write_json(out / "config.json", marian.write_model(model, sizes, marks, places))
    write_json(out / "generation_config.json", _generation(translator, marks, places))
    return write_tokenizer(vocabulary, recipe, folder.home_of(run) / TOKENIZER, out)


def _weights(translator: Translator, model: TransformerConfig) -> dict[str, Tensor]:
    """Ours, with queries and keys apart, and features in Marian's order."""
    weights = weights_of(translator.model)
    for name, module in translator.model.named_modules():
        if isinstance(module, SharedQueryKey):
            for part in ("weight", "bias"):
                weights[f"{name}.key_value.{part}"] = torch.cat([weights[f"{name}.{m}.{part}"] for m in MATRICES])
    layouts = {position.layout for position in model.position.of("encoder")}  # type: ignore[union-attr]
    return permuted(weights, sines_first(model.size)) if layouts == {"interleaved"} else weights


def _generation(translator: Translator, marks: dict[str, int], places: int) -> dict[str, Any]:
    decoding = translator.recipe.decoding
    beam: dict[str, Any] = {}
    if isinstance(decoding, Beam):  # their penalty is nᵅ; for another they keep their own α
        beam = {"num_beams": decoding.size, "early_stopping": True}
        beam |= {"length_penalty": decoding.length_penalty} if decoding.penalty == "power" else {}
    return {
        **marks,
        "forced_eos_token_id": marks["eos_token_id"],
        **beam,
        "max_length": places,
        "bad_words_ids": [[i] for i in sorted(set(translator.symbols.never))],
    }
