"""A folder with a BERT of Hugging Face's as a model folder: with its heads it fills gaps, without them it embeds.

And such models as folders of theirs, those that were fine-tuned here, too.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from regard import config
from regard.errors import RegardError, telling
from regard.examples.codec import ExampleCodec
from regard.examples.preparing import TOKENIZER
from regard.interop import bert
from regard.interop.checkpoint import Checkpoint, Imported
from regard.interop.choices import demand, reasons, refuse
from regard.interop.hf_tokenizer import read_one, write_one
from regard.interop.keys import KeyMap
from regard.interop.plain import bare
from regard.io.atomic import write_json
from regard.io.tensors import weights_of, write_tensors
from regard.models.bert import BertConfig
from regard.predict.embedding import TextEmbedder
from regard.predict.finetuned import FinetunedPredictor
from regard.recipe import Recipe
from regard.tasks.finetuning import FinetuningConfig
from regard.text import Tokenizer
from regard.text.pretrained import bert_tokenizer, read_bert_vocabulary

FORMS = {  # by what a model is for: their class, and the names of its weights
    "pairs": ("BertForPreTraining", bert.PRETRAINING),
    "single": ("BertForMaskedLM", bert.MASKED),
    "pooler": ("BertModel", bert.READER),
    "none": ("BertModel", bert.BODY.under("body.")),
    "classify": ("BertForSequenceClassification", bert.CLASSIFIER),
    "regress": ("BertForSequenceClassification", bert.CLASSIFIER),
    "tag": ("BertForTokenClassification", bert.TAGGER),
    "answer": ("BertForQuestionAnswering", bert.ANSWERER),
    "choose": ("BertForMultipleChoice", bert.CLASSIFIER),
}
POOLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}


def import_bert(origin: Path, out: Path) -> Imported:
    """Read the folder `origin` and write the model folder `out`."""
    made = read(Checkpoint(origin))
    with telling(out, "written"):
        out.mkdir(parents=True, exist_ok=True)
        made.write(out)
    return made


def read(checkpoint: Checkpoint) -> Imported:
    origin, said = checkpoint.folder, checkpoint.config
    model, given = bert.config_here(said, origin), checkpoint.tensors()
    entries = int(said.get("vocab_size", 30_522))
    if ours := read_one(origin, entries):  # exported by regard
        (tokenizer, sections), keys = ours, None
    else:
        about = checkpoint.json("tokenizer_config.json", {})
        lower = bool(about.get("do_lower_case", True))
        tokenizer = _tokenizer(checkpoint, about, lower, entries)
        task, keys = _task(checkpoint, given, model.position.length)  # type: ignore[union-attr]
        sections = {"task": task, "text": {"kind": "bert", "size": tokenizer.size, "lower": lower}}
    plain = {**sections, "data": {}, "model": config.to_plain(model)}
    recipe = config.parse(Recipe, config.wrap(plain, str(origin)))
    module, save = _module(recipe, tokenizer, said)
    weights = (keys or _form(recipe.task)[1]).to_ours(given, weights_of(module), origin)
    return Imported(recipe, weights, save)


def _module(recipe: Recipe, tokenizer: Tokenizer, said: Mapping[str, Any]) -> tuple[nn.Module, Callable[[Path], None]]:
    """The model, and what puts its vocabulary and labels into a folder."""
    task: Any = recipe.task
    if isinstance(task, FinetuningConfig):
        names = {int(n): name for n, name in said.get("id2label", {}).items()}
        codec = ExampleCodec(task, tokenizer, [names[n] for n in sorted(names)])
        return task.build_model(recipe, codec), codec.save
    return task.build(recipe, tokenizer.size), lambda out: tokenizer.save(out / TOKENIZER)


# --- out ------------------------------------------------------------------------------------------------------------


def write(made: TextEmbedder | FinetunedPredictor, run: Path, out: Path) -> str:
    """A folder that Hugging Face reads as a BERT with the head that ours has; says what it has for a tokenizer."""
    recipe, tokenizer = made.recipe, made.tokenizer
    refuse(reasons(recipe.model, {"kind": ["bert"]}, "BERT"), run, "Hugging Face")
    architecture, keys = _form(recipe.task)
    said = bert.config_there(cast(BertConfig, recipe.model), tokenizer.size, architecture)
    write_json(out / "config.json", said | {"pad_token_id": tokenizer.pad} | _labels(made))
    write_tensors(out / "model.safetensors", keys.to_theirs(weights_of(made.model), run), {"format": "pt"})
    return f"a {architecture}; {write_one(tokenizer, bare(cast(Recipe, recipe)), out, 'around')}"


def _form(task: Any) -> tuple[str, KeyMap]:
    if task.kind == "pretraining":
        return FORMS[task.examples.kind]
    return FORMS[task.head if task.kind == "embedding" else task.kind]


def _labels(made: TextEmbedder | FinetunedPredictor) -> dict[str, Any]:
    if made.recipe.task.kind == "regress":
        return {"num_labels": 1, "problem_type": "regression"}
    names = getattr(made, "labels", [])
    return {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}} if names else {}


# --- heads ---------------------------------------------------------------------------------------------------------


def _task(checkpoint: Checkpoint, given: Mapping[str, Tensor], longest: int) -> tuple[dict[str, Any], KeyMap]:
    """What the weights were made for, and how they are named."""
    prefix = "bert." if any(name.startswith("bert.") for name in given) else ""
    words, sentence = "cls.predictions.bias" in given, "cls.seq_relationship.weight" in given
    pooler = f"{prefix}pooler.dense.weight" in given
    common = {"length": longest}
    if words and sentence and pooler:
        return {"kind": "pretraining", "unknown": "", "examples": "pairs", **common}, bert.PRETRAINING
    spare = bert.POOLER.under("", prefix) + bert.SENTENCE
    if words:
        return {"kind": "pretraining", "unknown": "", "examples": "single", **common}, bert.MASKED.beside(spare)
    body = bert.BODY.under("body.", prefix)
    keys = (body + bert.POOLER.under("", prefix)) if pooler else body
    return {"kind": "embedding", "head": "pooler" if pooler else "none", **common, **_sentences(checkpoint)}, keys


def _sentences(checkpoint: Checkpoint) -> dict[str, Any]:
    """How a model of sentence vectors pools, where its folder says so."""
    origin, parts = checkpoint.folder, checkpoint.json("modules.json", [])
    names = [str(part.get("type", "")).rsplit(".", 1)[-1] for part in parts]
    found: dict[str, Any] = {"normalise": "Normalize" in names}
    for part, name in zip(parts, names, strict=True):
        if name == "Pooling":
            modes = checkpoint.json(f"{part['path']}/config.json")
            chosen = [
                key.removeprefix("pooling_mode_") for key, on in modes.items() if key.startswith("pooling_mode_") and on
            ]
            if len(chosen) != 1 or chosen[0] not in POOLINGS:
                raise RegardError(f"{origin}: vectors are pooled by {', '.join(chosen)}; known: {', '.join(POOLINGS)}")
            found["pooling"] = POOLINGS[chosen[0]]
        elif name not in ("Transformer", "Normalize"):
            raise RegardError(f"{origin}: the module {name} cannot be read")
    limit = checkpoint.json("sentence_bert_config.json", {}).get("max_seq_length")
    return found | ({"length": limit} if limit else {})


# --- vocabulary ----------------------------------------------------------------------------------------------------


def _tokenizer(checkpoint: Checkpoint, about: Mapping[str, Any], lower: bool, entries: int) -> Tokenizer:
    origin = checkpoint.folder
    if about.get("strip_accents") is not None:
        demand(about, {"strip_accents": lower}, origin)
    demand(about, {"tokenize_chinese_chars": True}, origin)
    pieces = _pieces(checkpoint)
    if len(pieces) > entries:
        raise RegardError(f"{origin}: the vocabulary has {len(pieces):,} pieces, and config.json says {entries:,}")
    spare = [f"[spare {n}]" for n in range(entries - len(pieces))]  # rows that fill the table to a round size
    return bert_tokenizer([*pieces, *spare], lower, str(origin))


def _pieces(checkpoint: Checkpoint) -> list[str]:
    if checkpoint.has("vocab.txt"):
        return read_bert_vocabulary(checkpoint.folder / "vocab.txt")
    model = checkpoint.json("tokenizer.json", {}).get("model", {})
    if model.get("type") != "WordPiece":
        raise RegardError(
            f"{checkpoint.folder}: there is no vocab.txt, and no tokenizer.json with a WordPiece vocabulary"
        )
    return sorted(model["vocab"], key=model["vocab"].__getitem__)
