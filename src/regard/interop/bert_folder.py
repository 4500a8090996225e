"""A folder with a BERT of Hugging Face's as a model folder: with its heads it fills gaps, without them it embeds.

And such models as folders of theirs, those that were fine-tuned here, too.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from regard import config
from regard.errors import RegardError, telling, text_of
from regard.interop import bert
from regard.interop.checkpoint import Imported, wide
from regard.interop.choices import demand
from regard.interop.express import reasons, refuse
from regard.interop.hf_tokenizer import read_one, write_one
from regard.interop.keys import KeyMap
from regard.interop.plain import bare
from regard.interop.writing import write_json
from regard.models.bert import BertConfig
from regard.recipe import Recipe
from regard.tasks.embedder import Embedder
from regard.tasks.finetuning import Finetuning
from regard.tasks.reading import Reader, Reading
from regard.tasks.texts import TOKENIZER
from regard.text import Tokenizer
from regard.text.pretrained import bert_pieces
from regard.training.weights import read_tensors, weights_of, write_tensors

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


def import_bert(origin: Path, out: Path, tensors: Mapping[str, Tensor] | None = None) -> Imported:
    """Read the folder `origin` and write the model folder `out`; `tensors`: its weights, if they are read already."""
    made = read_bert(origin, tensors)
    with telling(out, "written"):
        out.mkdir(parents=True, exist_ok=True)
        made.write(out)
    return made


def read_bert(origin: Path, tensors: Mapping[str, Tensor] | None = None) -> Imported:
    said = _json(origin / "config.json")
    model = bert.config_here(said, origin)
    given = wide(tensors if tensors is not None else read_tensors(origin / "model.safetensors"))
    entries = int(said.get("vocab_size", 30_522))
    if ours := read_one(origin, entries):  # exported by regard
        (tokenizer, sections), keys = ours, None
    else:
        tokenizer = _tokenizer(origin, entries)
        task, keys = _task(origin, given, model.position.length)  # type: ignore[union-attr]
        sections = {"task": task, "text": {"kind": "bert", "size": tokenizer.size, "lower": _lower(origin)}}
    plain = {**sections, "data": {}, "model": config.to_plain(model)}
    recipe = config.parse(Recipe, config.wrap(plain, str(origin)))
    module, save = _module(recipe, tokenizer, said)
    weights = (keys or _form(recipe.task)[1]).to_ours(given, weights_of(module), origin)
    return Imported(recipe, weights, save)


def _module(recipe: Recipe, tokenizer: Tokenizer, said: Mapping[str, Any]) -> tuple[nn.Module, Callable[[Path], None]]:
    """The model, and what puts its vocabulary and labels into a folder."""
    task: Any = recipe.task
    if isinstance(task, Finetuning):
        names = {int(n): name for n, name in said.get("id2label", {}).items()}
        reading = Reading(task, tokenizer, [names[n] for n in sorted(names)])
        return task.model(recipe, reading), reading.save
    return task.build(recipe, tokenizer.size), lambda out: tokenizer.save(out / TOKENIZER)


# --- out ------------------------------------------------------------------------------------------------------------


def write(made: Embedder | Reader, run: Path, out: Path) -> str:
    """A folder that Hugging Face reads as a BERT with the head that ours has; says what it has for a tokenizer."""
    recipe, tokenizer = made.recipe, made.tokenizer
    refuse(reasons(recipe.model, {"kind": ["bert"]}, "BERT"), run, "Hugging Face")
    architecture, keys = _form(recipe.task)
    said = bert.config_there(cast(BertConfig, recipe.model), tokenizer.size, architecture)
    write_json(out / "config.json", said | {"pad_token_id": tokenizer.pad} | _labels(made))
    write_tensors(out / "model.safetensors", keys.to_theirs(weights_of(made.model), run), {"format": "pt"})
    return f"a {architecture}; {write_one(tokenizer, bare(recipe), out, 'around')}"


def _form(task: Any) -> tuple[str, KeyMap]:
    if task.kind == "pretraining":
        return FORMS[task.examples.kind]
    return FORMS[task.head if task.kind == "embedding" else task.kind]


def _labels(made: Embedder | Reader) -> dict[str, Any]:
    if made.recipe.task.kind == "regress":
        return {"num_labels": 1, "problem_type": "regression"}
    names = getattr(made, "labels", [])
    return {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}} if names else {}


# --- heads ---------------------------------------------------------------------------------------------------------


def _task(origin: Path, given: Mapping[str, Tensor], longest: int) -> tuple[dict[str, Any], KeyMap]:
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
    return {"kind": "embedding", "head": "pooler" if pooler else "none", **common, **_sentences(origin)}, keys


def _sentences(origin: Path) -> dict[str, Any]:
    """How a model of sentence vectors pools, where its folder says so."""
    parts = _json(origin / "modules.json", [])
    names = [str(part.get("type", "")).rsplit(".", 1)[-1] for part in parts]
    found: dict[str, Any] = {"normalise": "Normalize" in names}
    for part, name in zip(parts, names, strict=True):
        if name == "Pooling":
            modes = _json(origin / part["path"] / "config.json")
            chosen = [
                key.removeprefix("pooling_mode_") for key, on in modes.items() if key.startswith("pooling_mode_") and on
            ]
            if len(chosen) != 1 or chosen[0] not in POOLINGS:
                raise RegardError(f"{origin}: vectors are pooled by {', '.join(chosen)}; known: {', '.join(POOLINGS)}")
            found["pooling"] = POOLINGS[chosen[0]]
        elif name not in ("Transformer", "Normalize"):
            raise RegardError(f"{origin}: the module {name} cannot be read")
    limit = _json(origin / "sentence_bert_config.json", {}).get("max_seq_length")
    return found | ({"length": limit} if limit else {})


# --- vocabulary ----------------------------------------------------------------------------------------------------


def _lower(origin: Path) -> bool:
    return bool(_json(origin / "tokenizer_config.json", {}).get("do_lower_case", True))


def _tokenizer(origin: Path, entries: int) -> Tokenizer:
    lower, about = _lower(origin), _json(origin / "tokenizer_config.json", {})
    if about.get("strip_accents") is not None:
        demand(about, {"strip_accents": lower}, origin)
    demand(about, {"tokenize_chinese_chars": True}, origin)
    pieces = _pieces(origin)
    if len(pieces) > entries:
        raise RegardError(f"{origin}: the vocabulary has {len(pieces):,} pieces, and config.json says {entries:,}")
    spare = [f"[spare {n}]" for n in range(entries - len(pieces))]  # rows that fill the table to a round size
    return bert_pieces([*pieces, *spare], lower, str(origin))


def _pieces(origin: Path) -> list[str]:
    path = origin / "vocab.txt"
    if path.is_file():
        lines = text_of(path).split("\n")
        return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
    model = _json(origin / "tokenizer.json", {}).get("model", {})
    if model.get("type") != "WordPiece":
        raise RegardError(f"{origin}: there is no vocab.txt, and no tokenizer.json with a WordPiece vocabulary")
    return sorted(model["vocab"], key=model["vocab"].__getitem__)


def _json(path: Path, absent: Any = None) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        if absent is not None:
            return absent
        raise RegardError(f"{path}: there is no such file") from None
    except ValueError:
        raise RegardError(f"{path}: not JSON, or cut short") from None
