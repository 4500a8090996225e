"""A folder of Hugging Face's with a BERT in it becomes a trained model of ours, which fine-tuning begins from."""

import json
from pathlib import Path
from typing import Any

from regard import config
from regard.errors import RegardError
from regard.folder import CONFIG, WEIGHTS
from regard.interop.bert import POOLER, body_here, config_here
from regard.models.heads import Headless
from regard.recipe import Recipe
from regard.text import Tokenizer, from_bert
from regard.training.weights import load_weights, read_tensors, weights_of, write_tensors


def bring_in(folder: str | Path, out: str | Path) -> list[str]:
    """Write config.yaml, model.safetensors and tokenizer/ to `out`; what is worth knowing comes back in sentences.

    The folder has config.json, model.safetensors and vocab.txt; its heads, if it has any, stay behind.
    """
    origin, place = Path(folder), Path(out)
    if place.exists() and any(place.iterdir()):
        raise RegardError(f"{place} is not empty; give another folder")
    theirs, tensors = _json(origin / "config.json"), read_tensors(origin / "model.safetensors")
    tokenizer, lower = vocabulary(origin)
    if theirs.get("vocab_size", 30522) != tokenizer.size:
        raise RegardError(f"{origin}: the model has {theirs.get('vocab_size')} words, vocab.txt has {tokenizer.size}")
    ours = config_here(theirs, origin / "config.json")
    model, said = Headless(ours.build(tokenizer.size)), []
    weights = {f"body.{name}": t for name, t in body_here(tensors, weights_of(model.body), origin).items()}
    prefix = "bert." if any(name.startswith("bert.") for name in tensors) else ""
    if f"{prefix}pooler.dense.weight" in tensors:
        pooler = {name: t for name, t in tensors.items() if name.startswith(f"{prefix}pooler.")}
        own = {f"pooler.{name}": t for name, t in weights_of(model.pooler).items()}
        weights |= POOLER.under("", prefix).to_ours(pooler, own, origin)
    else:
        said.append(f"{origin} has no pooler: that of {place} is new, and learns with the head")
        weights |= {f"pooler.{name}": t for name, t in weights_of(model.pooler).items()}
    load_weights(model, weights, origin / "model.safetensors")
    recipe = config.parse(
        Recipe,
        {
            "task": {"kind": "encoder"},
            "data": {"train": [{"path": str(origin)}]},  # where it came from; nothing is read there again
            "text": {"kind": "bert", "lower": lower},
            "model": config.to_plain(ours),
        },
    )
    place.mkdir(parents=True, exist_ok=True)
    tokenizer.save(place / "tokenizer" / "tokenizer.json")
    write_tensors(place / WEIGHTS, weights_of(model))
    (place / CONFIG).write_text(config.dump(recipe), encoding="utf-8")
    return said


def vocabulary(origin: Path) -> tuple[Tokenizer, bool]:
    """By its vocab.txt, and whether text is lower-cased: their tokenizer_config.json says so, or it is."""
    settings = origin / "tokenizer_config.json"
    lower = bool(_json(settings).get("do_lower_case", True)) if settings.exists() else True
    return from_bert(origin / "vocab.txt", lower), lower


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RegardError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise RegardError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise RegardError(f"{path}: not a mapping")
    return found
