"""A recipe: everything a run depends on, in one typed tree, read from YAML and dotted overrides."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard import config
from regard.config import option
from regard.data.config import Data
from regard.decoding.config import Beam, DecodingConfig
from regard.errors import RegardError
from regard.models.bytenet import ByteNetConfig
from regard.models.conv import ConvConfig
from regard.models.rnn import RnnConfig
from regard.models.transformer import PositionsConfig, TransformerConfig
from regard.tasks.translation import TranslationConfig
from regard.text import TextConfig
from regard.text.config import Bpe
from regard.training.config import Training

ModelConfig = TransformerConfig | RnnConfig | ConvConfig | ByteNetConfig
TaskConfig = TranslationConfig


@dataclass(frozen=True)
class Evaluation:
    tokenise: Literal["none", "13a", "intl", "zh", "char", "flores200", "ja-mecab", "ko-mecab"] | None = option(
        None, "sacreBLEU's tokeniser; by default the target language's"
    )
    form: Literal["plain", "prepared"] = option(
        "plain", "compare plain text, or the form the tokenizer's own stage gives (Moses tokens, lower case)"
    )


@dataclass(frozen=True)
class Recipe:
    data: Data = option(help="the corpora")
    task: TaskConfig = option(TaskConfig, "what is learned")
    text: TextConfig = option(Bpe, "how text becomes pieces")
    model: ModelConfig = option(TransformerConfig, "what learns")
    training: Training = option(Training, "how it learns")
    decoding: DecodingConfig = option(Beam, "how it speaks")
    evaluation: Evaluation = option(Evaluation, "how it is measured")
    seed: int = option(1, "of the weights, the order of batches and dropout")

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must be from 0 to 2147483647, not {self.seed}")
        if getattr(self.model, "share", None) == "all" and not self.text.shared:
            raise ValueError("model.share: all needs text.shared: true, since one matrix serves both languages")
        if self.task.guide is not None:
            self._check_guide()
        self._check_trees()
        longest = self.data.filters.max_length + 1  # and the end, or the start
        try:
            self.model.check(longest, longest)
        except ValueError as error:
            raise ValueError(f"model.{error}" if str(error).startswith("position.") else f"model: {error}") from None

    def _check_guide(self) -> None:
        if not hasattr(self.model, "attention"):
            raise ValueError(f"task.guide teaches attention to the source, and the model {self.model.kind} has none")
        bare = [c for c in self.data.train if c.alignments is None]
        if bare:
            raise ValueError(
                f"task.guide needs the word alignments of every training corpus, and {bare[0].name} has none; "
                "name their file (alignments: FILE, beside source and target)"
            )

    def _check_trees(self) -> None:
        position = getattr(self.model, "position", None)
        bare = [c for c in (*self.data.train, *self.data.valid, *self.data.test) if c.heads is None]
        if bare and isinstance(position, PositionsConfig) and "structural" in {p.kind for p in position.of("encoder")}:
            raise ValueError(
                "model.position.encoder: structural needs the dependency tree of every sentence, and "
                f"{bare[0].name} has none; name its CoNLL-U file (heads: FILE, beside source and target)"
            )


def find(name: str | Path) -> Path:
    """A recipe file, or a shipped recipe by its name."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if str(name) in shipped:
        return shipped[str(name)]
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


def load(source: str | Path | dict, overrides: Sequence[str] = ()) -> Recipe:
    """From a file, a shipped recipe's name, or a mapping: a recipe to learn by, which names what it learns from."""
    root = config.wrap(source, "config") if isinstance(source, dict) else config.read(find(source))
    recipe = config.parse(Recipe, config.override(root, overrides))
    if not recipe.data.train:
        raise RegardError(f"{root.where}: data.train names no corpus; name what is to be learned from")
    return recipe
