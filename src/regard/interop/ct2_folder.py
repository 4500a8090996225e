"""A model exported to CTranslate2: a folder, and one kept beside the model that is made anew when the model changes."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import api
from regard.data.prepared import file_hash
from regard.errors import RegardError
from regard.interop import ct2, ct2_example
from regard.interop.choices import reasons, refuse
from regard.interop.tokenizers_file import spellings
from regard.io import run_folder as folder
from regard.io.atomic import atomic_folder
from regard.predict.translation import Translator

if TYPE_CHECKING:
    from regard.recipe import Recipe

PRECISIONS = ("float32", "int8")
ABOUT = "regard.json"  # what the export was made from
VERSION = 2


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise RegardError(f"--precision is {precision!r}; write {' or '.join(PRECISIONS)}")


def write(translator: Translator, run: Path, out: Path, precision: str) -> str:
    """A CTranslate2 model in an empty folder, with the tokenizers that it needs and an example of its use."""
    check_precision(precision)
    model: Any = translator.recipe.model
    refuse(reasons(model, ct2.HAS, "CTranslate2") or ct2.more_reasons(model), run, "CTranslate2")
    spec = ct2.specification(translator.model, places(translator.recipe))  # type: ignore[arg-type]
    target, names = translator.vocabulary.target, spellings(translator.vocabulary)
    words = names[1]
    spec.register_source_vocabulary(names[0])
    spec.register_target_vocabulary(words)
    for key, i in (("unk", target.unk), ("bos", target.bos), ("eos", target.eos), ("decoder_start", target.bos)):
        setattr(spec.config, f"{key}_token", words[i])
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(str(out))
    (out / ABOUT).write_text(json.dumps({"made_from": origin(run)}), encoding="utf-8")
    said = ct2_example.write(translator, names, folder.run_folder_of(run) / "tokenizer", out)
    return f"a CTranslate2 model in {precision}; {said}"


def places(recipe: "Recipe") -> int:
    """How many places the exported position vectors can tell apart: enough for the longest that is translated."""
    longest = recipe.data.filters.max_length
    return max(1024, longest + 1, recipe.decoding.limit(longest) + 2)


def origin(run: Path) -> str:
    """What an export depends on, as one line."""
    files = [*sorted(run.glob("model*.safetensors")), folder.run_folder_of(run) / folder.CONFIG]
    return " ".join([str(VERSION), *(file_hash(path) for path in files)])


def cached(run: Path, precision: str) -> Path:
    """The export beside the model; made if it is not there, or if the model has changed since."""
    place = run / f"ct2-{precision}"
    try:
        if json.loads((place / ABOUT).read_text(encoding="utf-8"))["made_from"] == origin(run):
            return place
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent, or damaged: made anew
    translator = api.load(run, "cpu")
    if not os.access(run, os.W_OK):
        place = Path(tempfile.mkdtemp(prefix="regard-")) / place.name
    shutil.rmtree(place, ignore_errors=True)
    with atomic_folder(place) as made:
        write(translator, run, made, precision)
    return place
