"""A student's recipe: a preset that takes its sizes from the teacher, or a recipe of the user's own.

What a recipe leaves out is the teacher's: languages, vocabulary, validation and test data. Translates nothing.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from regard import config
from regard import recipe as recipes
from regard.data.config import Corpus, DataConfig
from regard.decoding import Greedy
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.run_folder import CONFIG, WEIGHTS, run_folder_of
from regard.models.transformer import AttentionsConfig, PositionsConfig, TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.recurrence import AverageAttentionConfig, DecoderSelfConfig, SelfAttentionConfig, SSRUConfig
from regard.recipe import Recipe, dump_recipe
from regard.reporting import Json
from regard.tasks.translation import TranslationConfig
from regard.training.checkpoint import CheckpointManager

PRESETS: dict[str, DecoderSelfConfig] = {  # by what the one decoder layer does with its own past
    "deep-shallow": SelfAttentionConfig(),
    "ssru": SSRUConfig(),
    "average": AverageAttentionConfig(),
}


def student_recipe(
    name: str, overrides: Sequence[str], teacher: Recipe, origin: Path, train: Sequence[Corpus], run: Path
) -> Recipe:
    """The recipe of a student that learns from `train`, and from what its own recipe names; `origin` is the teacher."""
    source: str | Json = _preset(name, teacher, origin) if name in PRESETS else name
    given = source if isinstance(source, dict) else _sections(name)
    task, data = given.get("task"), given.get("data") or {}
    kind = task.get("kind", "translation") if isinstance(task, dict) else task or "translation"
    if kind != "translation":
        raise RegardError(f"{name}: a recipe of the task {kind}; a student translates, as its teacher does")
    theirs = cast(Json, config.to_plain(teacher))
    missing = {key: theirs[key] for key in ("task", "text") if key not in given}
    missing |= {f"data.{key}": theirs["data"][key] for key in ("valid", "test", "filters") if key not in data}
    own = config.to_plain(data_of(name, data.get("train")))
    missing["data.train"] = [*cast(list[object], own), *(config.to_plain(corpus) for corpus in train)]
    extra = [f"{key}={json.dumps(value)}" for key, value in missing.items()]
    recipe = recipes.load_recipe(source, [*extra, *overrides], run)
    languages = cast(TranslationConfig, recipe.task).languages
    if languages != cast(TranslationConfig, teacher.task).languages:
        both = ["→".join(pair) for pair in (languages, cast(TranslationConfig, teacher.task).languages)]
        raise RegardError(f"{name}: a student of {both[0]} cannot learn from a teacher of {both[1]}")
    return replace(recipe, data=recipe.data.absolute())


def data_of(where: str, value: object) -> list[Corpus]:
    """The corpora of data.train, or of one --data: a file, NAME:SPLIT, or YAML of them."""
    return config.parse_config(DataConfig, config.to_node({"train": value} if value else {}, where)).train


def _sections(name: str) -> Json:
    """What a recipe's file says, as it stands there."""
    is_path = Path(name).suffix in (".yaml", ".yml") or "/" in name or Path(name).is_file()
    if not is_path and name not in recipes.shipped_recipes():
        known = ", ".join(PRESETS)
        raise RegardError(f"--student is {name!r}, which is no preset and no recipe; write {known}, or a recipe's file")
    plain = config.read_yaml(recipes.find_recipe(name)).plain()
    return plain if isinstance(plain, dict) else {}


def _preset(name: str, teacher: Recipe, origin: Path) -> Json:
    """As wide as the teacher: what its decoder gives up, all but one layer, the encoder gets (Kasai 2021)."""
    model = teacher.model
    if not isinstance(model, TransformerConfig):
        raise RegardError(
            f"--student {name} takes its sizes from a Transformer, and {origin} is of the kind {model.kind}; "
            "give a recipe"
        )
    chosen, depth = PRESETS[name], model.layers + (model.decoder_layers or model.layers)
    attention, position = model.attention, model.position
    if chosen.kind != "attention":  # what it chose for decoder self-attention has no place
        attention = AttentionsConfig(attention.encoder, AttentionConfig(), attention.cross)
        if not all(each.embeds for each in position.of("decoder")):
            position = replace(position, decoder=PositionsConfig().decoder)
    small = replace(model, preset=None, layers=depth - 1, decoder_layers=1, position=position, attention=attention,
                    decoder_self=chosen)  # fmt: skip
    training = replace(teacher.training, init=None, callbacks=[])
    decoding = Greedy(max_ratio=teacher.decoding.max_ratio, max_extra=teacher.decoding.max_extra)
    parts = {"task": teacher.task, "text": teacher.text, "model": small, "training": training, "decoding": decoding}
    plain = {key: cast(Json, config.to_plain(part)) for key, part in parts.items()}
    plain["model"].pop("proposals", None)  # heads that the teacher was given, perhaps to learn alone
    return {**plain, "seed": teacher.seed, "evaluation": config.to_plain(teacher.evaluation)}


def seed_run(recipe: Recipe, teacher: Recipe, origin: Path, run: Path) -> bool:
    """Puts the teacher's vocabulary into a run that has not begun, unless the recipe has one of its own.

    So the student knows the same pieces by the same ids, as a draft for speculative decoding must.
    """
    same = config.to_plain(recipe.text) == config.to_plain(teacher.text)
    if not same or recipe.training.init or (run / WEIGHTS).exists() or CheckpointManager(run).exists():
        return same
    run.mkdir(parents=True, exist_ok=True)
    (run / CONFIG).unlink(missing_ok=True)
    shutil.copytree(run_folder_of(origin) / "tokenizer", run / "tokenizer", dirs_exist_ok=True)
    with atomic_write(run / CONFIG) as file:  # last: with it the folder is a run, whose vocabulary training takes
        file.write(dump_recipe(recipe))
    return same
