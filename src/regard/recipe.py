"""A recipe: everything a run depends on, in one typed tree, read from YAML and dotted overrides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from regard import config
from regard.config import Node, option
from regard.console import Console
from regard.data.config import DataConfig
from regard.decoding.config import Beam, DecodingConfig
from regard.errors import RegardError, require_list
from regard.evaluation.metrics import MetricConfig
from regard.io.models import find_model
from regard.io.run_folder import CONFIG
from regard.models import ModelConfig, TransformerConfig
from regard.tasks import TaskConfig, TranslationConfig
from regard.text import TextConfig
from regard.text.config import Bpe
from regard.training.config import TrainingConfig

FORMAT = 1  # of the config.yaml in a run folder; raised where a version before could misread what is written
RENAMED_KEYS: dict[str, str] = {}  # keys that had another name, dotted: old → new
REPLACED_RECIPES = {  # names that were shipped once → what to use instead
    "bert-tiny-wikitext2": "it hardly learned more than the commonest word; use bert-cpu (runs of it go on with "
    "their own config.yaml)"
}
MAX_LAYERS = 2000  # a thousand have been trained (arXiv:2203.00555)


@dataclass(frozen=True)
class EvaluationConfig:
    tokenise: Literal["none", "13a", "intl", "zh", "char", "flores200", "ja-mecab", "ko-mecab"] | None = option(
        None, "sacreBLEU's tokeniser; by default the target language's"
    )
    form: Literal["plain", "prepared"] = option(
        "plain", "compare plain text, or the form the tokenizer's own stage gives (Moses tokens, lower case)"
    )
    metrics: list[MetricConfig] = option([], "metrics of your own, beside the task's")


@dataclass(frozen=True)
class Recipe:
    data: DataConfig = option(help="the corpora")
    task: TaskConfig = option(TranslationConfig, "what is learned")
    text: TextConfig = option(Bpe, "how text becomes tokens")
    model: ModelConfig = option(TransformerConfig, "the model: its kind and size")
    training: TrainingConfig = option(TrainingConfig, "optimiser, schedule, validation and checkpoints")
    decoding: DecodingConfig = option(Beam, "how output is generated")
    evaluation: EvaluationConfig = option(EvaluationConfig, "how output is measured")
    seed: int = option(1, "of the weights, the order of batches and dropout")
    plugins: list[str] = option([], "modules that register choices of your own, as my_package.parts")

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must be from 0 to 2147483647, not {self.seed}")
        for name in ("layers", "decoder_layers", "sets"):
            if (count := vars(self.model).get(name) or 0) > MAX_LAYERS:
                raise ValueError(f"model.{name} is {count}; it can be at most {MAX_LAYERS}")
        if self.model.kind not in self.task.models:
            raise ValueError(
                f"model.kind is {self.model.kind}, but the task {self.task.kind} learns with "
                f"{' or '.join(self.task.models)}; change one of the two"
            )
        own = [metric.kind for metric in self.evaluation.metrics]
        if own and not self.task.has_text_output:
            raise ValueError(f"evaluation.metrics compare texts, and the output of the task {self.task.kind} is none")
        measured = [*self.task.metrics, *own]
        if twice := [kind for kind in own if measured.count(kind) > 1]:
            raise ValueError(f"evaluation.metrics names {twice[0]}, which is measured already")
        if self.training.goal not in measured:
            raise ValueError(f"training.goal is {self.training.goal!r}; {config.nearest(self.training.goal, measured)}")
        self._check_searches()
        self.task.check(self)

    def _check_searches(self) -> None:
        searches = {"decoding": self.decoding, "training.validation.decoding": self.training.validation.decoding}
        for key, search in searches.items():
            try:
                search.check_model(self.model)
            except ValueError as error:
                raise ValueError(f"{key}.{error}") from None

    @classmethod
    def expand(cls, mapping: dict[str, object]) -> dict[str, object]:
        """Keys that the recipe lacks have the task's defaults."""
        task = mapping.get("task")
        kind = task.get("kind") if isinstance(task, dict) else task
        known = config.choices(TaskConfig).get(str(kind))
        return config.with_defaults(mapping, known.defaults) if known else mapping


def find_recipe(name: str | Path) -> Path:
    """A recipe file, or a shipped recipe by its name."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if str(name) in shipped:
        return shipped[str(name)]
    if str(name) in REPLACED_RECIPES:
        raise RegardError(f"{name} is not shipped any more: {REPLACED_RECIPES[str(name)]}")
    if path.suffix in (".yaml", ".yml") or "/" in str(name):
        raise RegardError(f"{name}: there is no such file")
    raise RegardError(f"{name}: no such file or shipped recipe; {config.nearest(str(name), shipped)}")


def shipped_recipes() -> dict[str, Path]:
    """Inside an installed package, or at the root of a checkout."""
    here = Path(__file__).parent
    for folder in (here / "recipes", here.parent.parent / "recipes"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return {}


def load_recipe(source: str | Path | dict, overrides: Sequence[str] = (), run: Path | None = None) -> Recipe:
    """The recipe of a file, of a shipped recipe's name, or of a mapping, to train by: `data.train` must be given.

    `run` is the folder to train in, whose config.yaml stands in for training.init where that folder is gone.
    """
    require_list(overrides, 'regard.train(..., overrides=["model.layers=4"])', "assignments")
    root = config.to_node(source, "config") if isinstance(source, dict) else config.read_yaml(find_recipe(source))
    notices = config.rename_keys(root, RENAMED_KEYS)
    for text in overrides:
        if (renamed := config.rename_override(text, RENAMED_KEYS)) != text:
            notices.append(f"{config.COMMAND_LINE}: {text.partition('=')[0]} is called {renamed.partition('=')[0]} now")
        config.apply_overrides(root, [renamed])
    for sentence in notices:
        Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)
    _load_plugins(root)
    _inherit(root, run)
    recipe = parse_recipe(root)
    recipe = replace(recipe, plugins=list(dict.fromkeys([*recipe.plugins, *config.plugins_of(recipe)])))
    if not recipe.data.train:
        raise RegardError(f"{root.where}: data.train names no corpus; name what is to be learned from")
    for corpus in recipe.data.train:
        if corpus.source is not None and Path(corpus.source) == Path(str(corpus.target)):
            raise RegardError(
                f"{root.where}: data.train has {corpus.source} for both source and target; give two files"
            )
    return recipe


def parse_recipe(root: Node) -> Recipe:
    """A recipe, or the config.yaml of a run, of this version or an earlier one."""
    written = root.value.pop("format", None) if isinstance(root.value, dict) else None
    if written is not None and (type(written.value) is not int or written.value < 1):
        raise RegardError(f"{written.where}: format is a number from 1 to {FORMAT}, not {written.raw!r}")
    number = FORMAT if written is None else written.value
    config.rename_keys(root, RENAMED_KEYS)
    config.load_allowed_plugins()
    try:
        return config.parse_config(Recipe, root)
    except RegardError as error:
        config.require_plugins(*_plugins(root))  # where one is missing, what it registers is a mistake
        if number <= FORMAT:
            raise
        newer = f"written by a newer regard, format {number}, and this one reads up to {FORMAT}; update regard"
        raise RegardError(f"{error} ({newer})") from None


def _plugins(root: Node) -> tuple[list[str], str]:
    """The plugins that a recipe names, and where."""
    section = root.value.get("plugins") if isinstance(root.value, dict) else None
    names = section.plain() if section is not None else []
    return names if isinstance(names, list) else [names], section.where if section is not None else root.where


def _load_plugins(root: Node) -> None:
    """Those of a user's own recipe. The config.yaml of a run, which has a format, may be somebody else's."""
    names, where = _plugins(root)
    if "format" not in root.value or where.startswith(config.COMMAND_LINE):
        config.load_plugins(names, where)


def dump_recipe(recipe: Recipe) -> str:
    """The text of a run's config.yaml."""
    return f"format: {FORMAT}\n{config.dump_yaml(recipe)}"


def _inherit(root: Node, run: Path | None) -> None:
    """Keys that the sections text and model lack are those of the run that training.init names.

    A section that names its kind or preset takes none of them.
    """
    training = root.value.get("training") if isinstance(root.value, dict) else None
    if training is None or not isinstance(training.value, dict):
        return
    init = training.value.get("init")
    if init is None or not isinstance(init.value, str):
        return
    folder = find_model(init.value, missing_ok=True)
    if folder != Path(init.value):  # it was a name: the same run from any working folder
        init = Node(str(folder.absolute()), init.where, str(folder.absolute()))
    training.value["init"] = init
    origin = next((folder for folder in (Path(init.value), run) if folder and (folder / CONFIG).is_file()), None)
    for name in ("text", "model"):
        section = root.value.get(name)
        keys = section.value if section else {}
        if origin and isinstance(keys, dict) and not {"kind", "preset"} & set(keys):
            section = root.value.setdefault(name, Node({}, init.where))
            theirs = parse_recipe(config.read_yaml(origin / CONFIG))
            config.fill_missing(section, config.to_plain(vars(theirs)[name]), str(origin / CONFIG))


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder, complete."""
    if not folder.is_dir():
        raise RegardError(f"{folder}: there is no such folder")
    if not (folder / CONFIG).exists():
        raise RegardError(f"{folder}: not a trained model ({CONFIG} is missing)")
    root = config.read_yaml(folder / CONFIG)
    training = root.value.get("training") if isinstance(root.value, dict) else None
    if training is not None and isinstance(training.value, dict):
        training.value.pop("callbacks", None)  # no part of what was trained, and their plugins are not needed for it
    return parse_recipe(root)
