"""Fine-tuning: what the tasks that put a small head on a BERT have in common. Each says in its own file what differs.

A task reads examples, makes units of them, and turns the scores of all units of an example into a prediction. The head
begins anew; the body begins as `training.init` gives it, with that run's vocabulary.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import at_least, option
from regard.data.config import Corpus
from regard.errors import RegardError
from regard.evaluation.labels import require_packages
from regard.examples.codec import Notes, Reader, Reading
from regard.examples.features import Unit, UnitsView, padded
from regard.examples.preparing import TOKENIZER
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import single
from regard.models.texts import Texts
from regard.predict.options import texts_of
from regard.reporting import Progress
from regard.tasks.contract import BaseTask
from regard.tasks.recipe_checks import fits, refuse_sampling
from regard.text import Tokenizer

TRAINING: dict[str, Any] = {  # as BERT is fine-tuned (Devlin 2019, A.3)
    "label_smoothing": 0.0,
    "clip": 1.0,
    "optimiser": {"beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01},
    "schedule": {"kind": "linear", "peak": 5e-5, "warmup": 100},
    "tokens_per_batch": 65536,
}


def defaults(goal: str) -> dict[str, Any]:
    return {"text": {"kind": "bert"}, "model": {"kind": "bert"}, "training": TRAINING | {"goal": goal}}


@dataclass(frozen=True)
class Finetuning:
    """The settings that all have. A subclass has `kind`, `metrics`, `defaults`, and the methods that raise here."""

    models: ClassVar[tuple[str, ...]] = ("bert",)
    metrics: ClassVar[Mapping[str, bool]] = {}
    defaults: ClassVar[dict[str, Any]] = {}
    reads: ClassVar[type[Reader]] = Reader  # what `regard.load` gives
    asks: ClassVar[tuple[str, ...]] = ("text",)
    needs: ClassVar[tuple[str, ...]] = ("scikit-learn",)  # packages that measure it
    smooths: ClassVar[bool] = False  # whether its labels can be smoothed
    counted: ClassVar[str] = "examples"  # what is learned from, one by one

    kind: str = "?"
    batch: int = option(32, "examples of a micro-batch; training.tokens_per_batch bounds it too")
    length: int = option(128, "pieces of a row, marks included")
    limit: int = option(0, "learn from the first so many training examples alone; 0: all")
    frozen: bool = option(False, "learn the head and its pooler alone; the body stays as training.init gives it")

    def __post_init__(self) -> None:
        at_least(self, 1, "batch")
        if self.limit < 0:
            raise ValueError(f"limit must be 0 or more, not {self.limit}")
        at_least(self, 8, "length")

    @property
    def title(self) -> str:
        return self.kind

    def check(self, recipe: RecipeLike) -> None:
        if self.frozen and not recipe.training.init:
            raise ValueError("task.frozen leaves the body as training.init gives it, and training.init names nothing")
        if recipe.training.label_smoothing and not self.smooths:
            raise ValueError(f"training.label_smoothing means nothing to the task {self.kind}; write 0")
        if getattr(recipe.model, "segments", 2) < 2:
            raise ValueError(f"model.segments must be at least 2 for the task {self.kind}: it tells two texts apart")
        fits(recipe, self.length)

    # --- what a task says --------------------------------------------------------------------------------------

    def examples(self, corpus: Corpus) -> Iterator[Any]:
        """What the corpus holds; every example has `where`."""
        raise NotImplementedError

    def words(self, example: Any) -> Iterator[str]:
        """The texts of an example, from which a vocabulary is learned where there is none."""
        raise NotImplementedError

    def labels(self, examples: Sequence[Any]) -> list[str]:
        """What can be said, as the training data has it; tasks without labels have none."""
        return []

    def texts(self, examples: Sequence[Any]) -> int:
        """How many texts each example of the training data has, where all have as many and a user may give others."""
        return 0

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        """The body with its head."""
        raise NotImplementedError

    def units(self, examples: Sequence[Any], reading: Reading, notes: Notes, learn: bool) -> list[Unit]:
        """The units of the examples; what is to `learn` drops those that teach nothing, and says so in the notes."""
        raise NotImplementedError

    def collate(self, units: Sequence[Unit], reading: Reading) -> Texts:
        """A batch, with classes where all are known."""
        batch = self.rows(units, reading)
        known = all(unit.target is not None for unit in units)
        return replace(batch, classes=self.classes(units, batch)) if known else batch

    def rows(self, units: Sequence[Unit], reading: Reading) -> Texts:
        return replace(padded(units, reading.marks.pad), rows=tuple(unit.owner for unit in units))

    def classes(self, units: Sequence[Unit], batch: Texts) -> Tensor:
        return torch.tensor([unit.target for unit in units])

    def count(self, unit: Unit) -> int:
        """How many targets it has."""
        return 1

    def merge(self, example: Any, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading) -> Any:
        """What is said of an example, from the scores of all its units."""
        raise NotImplementedError

    def measure(self, examples: Sequence[Any], said: Sequence[Any], reading: Reading) -> dict[str, Any]:
        """The metrics of what was said, with signatures, without the loss."""
        raise NotImplementedError

    # --- from files to a task or a trained model ---------------------------------------------------------------

    def model(self, recipe: RecipeLike, reading: Reading) -> nn.Module:
        made = cast(Any, recipe.model)
        body = getattr(made, "body", made.build)(reading.tokenizer.size)
        return self.build(body, reading.labels)

    def open(self, recipe: RecipeLike, home: Path) -> Reader:
        reading = Reading.load(self, home)
        return self.reads(self.model(recipe, reading), reading, recipe)

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "FinetuningTask":
        require_packages(self.needs)
        try:
            refuse_sampling(recipe)  # here, since it changes nothing of a model that is trained
        except ValueError as error:
            raise RegardError(str(error)) from None
        weighted = self.weighted(recipe.data.train)[: self.limit or None]
        train = [example for _, example in weighted]
        valid, test = self.all(recipe.data.valid), self.all(recipe.data.test)  # mistakes are told now
        if home is not None:
            tokenizer = Tokenizer.load(home / TOKENIZER)
        else:
            words = lambda: (word for example in train for word in self.words(example))  # noqa: E731
            tokenizer = single(recipe, words, "en", self.kind)
        reading = Reading(self, tokenizer, self.labels(train), self.texts(train))
        progress("Reading examples", len(train), 0)
        made = FinetuningTask(recipe, reading, train, valid, np.array([weight for weight, _ in weighted]))
        reading.units(test)  # a label that was never seen is told now, not in the end
        return made

    def all(self, corpora: Sequence[Corpus]) -> list[Any]:
        return [example for _, example in self.weighted(corpora)]

    def weighted(self, corpora: Sequence[Corpus]) -> list[tuple[float, Any]]:
        """All examples, with the weight of the corpus that each comes from."""
        found = [(corpus.weight, example) for corpus in corpora for example in self.examples(corpus)]
        if corpora and not found:
            raise RegardError(f"{', '.join(corpus.name for corpus in corpora)}: there are no examples")
        return found

    def evaluate(
        self, made: Reader, split: str | None, given: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        corpora = texts_of(made.recipe, split, given.get("text"))
        return made.measure(corpora, progress)


class FinetuningTask(BaseTask):
    def __init__(
        self, recipe: RecipeLike, reading: Reading, train: Sequence[Any], valid: Sequence[Any], weights: np.ndarray
    ) -> None:
        super().__init__(recipe)
        self.reading, self.settings, self.counted = reading, reading.settings, reading.settings.counted
        self.notes_of_train, self.notes_of_valid = Notes(), Notes()
        self.train, self.valid = train, valid[: recipe.training.validation.lines or None]
        self.units = reading.units(train, self.notes_of_train, learn=True)
        if not self.units:
            raise RegardError(f"no examples are left to learn from. {'. '.join(self.notes_of_train.sentences())}")
        reading.units(valid, self.notes_of_valid)
        self.weights = weights[[unit.owner for unit in self.units]]
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> str:
        found = hashlib.blake2b(digest_size=12)
        found.update(json.dumps([self.reading.tokenizer.fingerprint, self.reading.labels]).encode())
        for unit in self.units:
            found.update(np.array([n for row in unit.rows for n in row.ids], dtype=np.int32).tobytes())
            found.update(repr(unit.target).encode())
        return found.hexdigest()

    def report(self) -> list[str]:
        labels = f", {len(self.reading.labels)} labels" if self.reading.labels else ""
        rows = sum(len(unit.rows) for unit in self.units)
        said = [f"{len(self.train):,} examples in {rows:,} rows{labels}"]
        said += self.notes_of_train.sentences()
        return said + [f"validation data: {sentence}" for sentence in self.notes_of_valid.sentences()]

    def build_model(self) -> nn.Module:
        return self.settings.model(self.recipe, self.reading)

    def inherit(self, model: nn.Module, tensors: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
        """What the model begins with: the body of another run, its pooler where both have one; the head is new.

        A body that reads what another makes of a text says where in itself that goes (`inherits`).
        """
        inside = "body." + getattr(model.body, "inherits", "")
        tensors = {n.replace("body.", inside, 1) if n.startswith("body.") else n: t for n, t in tensors.items()}
        kept = model.state_dict()  # which names shared tables twice
        own = {n: t.detach() for n, t in (*model.named_parameters(), *model.named_buffers()) if n in kept}
        taken = {n: t for n, t in tensors.items() if n.startswith(("body.", "pooler.")) and n in own}
        missing = [name for name in own if name.startswith(inside) and name not in taken]
        foreign = [name for name in tensors if name.startswith(inside) and name not in own]
        if inside != "body." and not any(name.startswith(inside) for name in own):
            return own  # it reads nothing but its own words: the other run gives the vocabulary
        if missing or foreign:
            wrong = f"{missing[0]} is missing there" if missing else f"{foreign[0]} is not in this model"
            raise RegardError(
                f"{origin}: training.init has another body than the recipe's model ({wrong}); "
                "write its model section into the recipe"
            )
        return own | taken

    def view(self, seed: int, epoch: int) -> UnitsView:
        """Each unit as often as its corpus weighs; a part of a time is a chance."""
        whole, part = np.divmod(self.weights, 1)
        times = whole + (np.random.default_rng([seed, epoch]).random(len(part)) < part)
        order = np.repeat(np.arange(len(self.units)), times.astype(np.int64))
        if not len(order):
            raise RegardError("the weights of the corpora leave no example for an epoch; raise a weight")
        return UnitsView(self.units, order, self.settings.batch, self.reading.collate, self.settings.count)

    def fixed(self, model: nn.Module, batch: Texts) -> Texts | None:
        return batch.fixed() if self.recipe.model.kind == "bert" else None  # recurrent layers are not recorded

    def describe(self, batch: Texts) -> str:
        shown = [self.train[n].where for n in batch.rows[:3]]
        return f"{len(batch.rows)} examples, first {'; '.join(shown)}"

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        if not self.valid:
            return {}
        said, loss = self.reading.say(model, self.valid, progress)
        found = self.settings.measure(self.valid, said, self.reading)
        values = {name: entry["value"] for name, entry in found.items()}
        return values if loss is None else values | {"loss": loss}

    def measure(self, model: nn.Module, split: str, progress: Progress | None = None) -> dict[str, Any]:
        corpora = getattr(self.recipe.data, split)
        return self.settings.reads(model, self.reading, self.recipe).measure(corpora, progress) if corpora else {}

    def save(self, folder: Path) -> None:
        self.reading.save(folder)
