"""Every choice of every slot in bf16: a few steps, a validation, a search, many choices in one process.

    python3 -m tests.gpu.choices --part 0 --of 8 --work FOLDER --device cuda

The choices are read off the package's own config classes, so that a new one is tried without a word here: every
kind of a slot, every value of a literal, both of a boolean, for each kind of model, one at a time on top of a
small model; patterns from their table; every dropout on; and every task with every model that can learn it. What a
recipe refuses is told as refused.
"""

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from regard import config, recipe
from regard.errors import RegardError
from regard.mechanisms import FIRST_TASKS, example_pattern
from regard.nn.pattern import PATTERNS
from regard.training.config import TrainingConfig
from tests.gpu.report import Refused, step
from tests.gpu.scheduler import Item

STEPS = 4  # the first micro-batch of a shape runs as usual, the second is recorded, later ones are replayed
STACK = {"layers": 2, "size": 64, "inner": 128, "heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": STACK,
    "lm": STACK,
    "decoder_only": STACK,
    "bert": STACK,
    "rnn": {"size": 32},
    "conv": {"layers": 2, "size": 32},
    "bytenet": {"sets": 1, "dilations": [1, 2], "size": 32},
    "lstm_lm": {"layers": 2, "size": 32, "hidden": 32},
    "bilstm_lm": {"layers": 1, "size": 32},
    "elmo": {"size": 32, "embedding": 16, "features": {"kind": "bilstm_lm", "layers": 1, "size": 32}},
}
TASKS: dict[str, dict[str, Any]] = {  # a set for each, and how its text is cut
    "translation": {"set": "multi30k", "task": {"source": "en", "target": "de"}},
    "lm": {"set": "tinyshakespeare", "task": {"documents": "file", "length": 256}, "text": "char"},
    "chat": {"set": "dailydialog", "task": {"length": 64}, "text": {"kind": "byte_bpe", "size": 400}},
    "pretraining": {"set": "wikitext-2", "task": {"documents": "article", "length": 256}},
    "classify": {"set": "glue/SST-2", "task": {"length": 32}},
    "regress": {"set": "glue/STS-B", "task": {"length": 32}},
    "tag": {"set": "conll2003", "task": {"length": 32, "overlap": 8}},
    "answer": {"set": "squad-dev-split", "task": {"length": 64, "overlap": 16, "question": 20}},
    "choose": {"set": "dream", "task": {"length": 64}},
}
NOT_LEARNED = ("embedding",)  # a task that is only imported
NUMBERS = {"d_k": "16", "d_v": "16", "heads": "2", "kv_heads": "2", "decoder_layers": "1", "memory": "64"}
NUMBERS |= {"accumulate": "2", "ema": "0.9", "clip": "0.5"}
NO_SLOTS = {"parallel"}  # for several GPUs
ROOMY = {"learned": ["length=300"], "linformer": ["length=300", "size=16"]}  # what a kind needs to serve our lengths
MEMORY = ("model.position=transformer_xl", "task.boundaries=marked")
WITH = (
    ("model.attends=current",),
    ("training.goal=loss",),
    ("model.proposals=3",),
    MEMORY,
)  # what makes possible what is refused alone
EXTRAS = [  # what one choice alone does not show: (task, model, overrides)
    ("lm", "lm", ("model.targets=2", "task.boundaries=marked")),
    ("lm", "lm", ("task.learn=last",)),
    ("lm", "lm", ("model.attention.pattern=window(16)", "model.position=rotary")),  # of any length, in a ring
    ("lm", "lm", ("model.attention.pattern=blocks(16)", "model.attention.compress=strided_conv")),
    ("lm", "lm", ("decoding.kind=speculative", "decoding.draft=layers(1)", "model.attention.pattern=window(16)")),
    ("classify", "lm", ("task.lm_weight=0.5",)),
    ("translation", "decoder_only", ("model.source_weight=0",)),
    ("translation", "decoder_only", ("model.attention.pattern=blocks(8)", "model.attention.compress=strided_conv")),
    ("translation", "decoder_only", ("model.proposals=3", "decoding.kind=blockwise")),
    ("translation", "decoder_only", ("decoding.kind=speculative", "decoding.draft=layers(1)")),
    ("translation", "transformer", ("decoding.kind=speculative", "decoding.draft=layers(1)")),
    ("translation", "transformer", ("decoding.kind=speculative", "decoding.temperature=1", "decoding.top_p=0.9")),
    ("translation", "transformer", ("model.decoder_self=ssru", "model.decoder_layers=1", "decoding.size=4")),
    ("translation", "transformer", ("model.attention.decoder.pattern=window(4) | global(1)", "decoding.size=4")),
]
PIECES, WORDS = {"kind": "bert", "size": 150}, {"kind": "word", "size": 400}


@dataclass(frozen=True)
class Choice:
    slot: str  # the key's last name: score, position, residual …
    task: str
    model: str
    overrides: tuple[str, ...]

    @property
    def what(self) -> str:
        said = " ".join(self.overrides) or "as it is"
        return f"{self.task}, {self.model}: {said}"

    def base(self, work: Path) -> dict[str, Any]:
        about = TASKS[self.task]
        trees = self.task == "translation" and any("structural" in each for each in self.overrides)
        data = {split: f"{about['set']}:{split}" for split in ("train", "valid")}
        if trees:  # of the sentences: which the made sets lack
            keys = {"source": "en", "target": "de", "heads": "conllu"}
            data = {s: {k: str(work / f"{s}.{end}") for k, end in keys.items()} for s in data}  # type: ignore[misc]
        words = self.task == "translation" or self.model == "lstm_lm"
        return {
            "task": {"kind": self.task, **about["task"]},
            "data": data,
            "text": WORDS if words else about.get("text", PIECES),
            "model": {"kind": self.model, **MODELS[self.model]},
            "training": {
                "steps": STEPS,
                "tokens_per_batch": 1024,
                "precision": "bf16",
                "schedule": {"kind": "constant", "peak": 1e-3},
                "validation": {"every": STEPS, "lines": 16},
                "checkpoints": {"every": STEPS, "keep": 1},
            },
            "decoding": {"kind": "sample" if self.task in ("lm", "chat") else "beam"},
        }

    def load(self, work: Path) -> recipe.Recipe:
        return recipe.load_recipe(self.base(work), self.overrides)


# --- what there is -------------------------------------------------------------------------------------------------


@cache
def everything() -> list[Choice]:
    """Each different recipe once; a value that is the default anyway is the model as it is."""
    found: dict[str, Choice] = {}
    for choice in listed():
        able = accepted(choice)
        key = choice.what if able is None else config.dump_yaml(able.load(Path("work")))
        found.setdefault(key, able or choice)
    return list(found.values())


def accepted(choice: Choice) -> Choice | None:
    """As a recipe takes it, alone or with what makes it possible."""
    for more in ((), *WITH):
        able = dataclasses.replace(choice, overrides=(*more, *choice.overrides))
        with contextlib.suppress(RegardError):
            able.load(Path("work"))
            return able
    return None


def listed() -> Iterator[Choice]:
    """All there are, defaults too."""
    first: dict[str, str] = {}  # the task that a model's choices are tried on
    for task in sorted(config.choices("task").values(), key=lambda task: task.kind not in FIRST_TASKS):
        if task.kind not in NOT_LEARNED:
            for model in task.models:
                first.setdefault(model, task.kind)
                yield Choice("task and model", task.kind, model, ())
    models = config.choices("model").values()
    for model in models:
        if any(issubclass(model, other) and model is not other for other in models):
            continue  # its keys are those of the other
        for slot, overrides in _slots(model, "model"):
            yield Choice(slot, first[model.kind], model.kind, overrides)
    for slot, overrides in _slots(TrainingConfig, "training"):
        for model in ("transformer", "lm"):
            yield Choice(slot, first[model], model, overrides)
    for slot, overrides in _kinds("decoding", recipe.DecodingConfig):
        for model in ("transformer", "lm"):
            yield Choice(slot, first[model], model, overrides)
    for task_kind, model_kind, overrides in EXTRAS:
        yield Choice("several", task_kind, model_kind, overrides)


def _slots(cls: Any, path: str, before: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(slot, overrides) of every choice below a config class, whose own choice took `before`."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.name in ("preset", *NO_SLOTS):
            continue
        key, members = f"{path}.{field.name}", _members(hints[field.name])
        literal = [value for m in members if get_origin(m) is Literal for value in get_args(m)]
        classes = [m for m in members if dataclasses.is_dataclass(m)]
        if field.name == "pattern":
            values = [example_pattern(name) for name in PATTERNS]
            yield from (("pattern", (*before, f"{key}={value}")) for value in values)
        elif classes and any(issubclass(c, config.Choice) for c in classes):
            yield from ((slot, (*before, *rest)) for slot, rest in _kinds(key, hints[field.name]))
        elif classes:
            yield from _slots(classes[0], key, before)
        elif literal or bool in members:
            values = [str(v) for v in literal] if literal else ["true", "false"]
            yield from ((field.name, (*before, f"{key}={value}")) for value in values)
        elif field.name in NUMBERS or field.name.endswith("dropout"):
            yield field.name, (*before, f"{key}={NUMBERS.get(field.name, '0.1')}")


def _kinds(key: str, union: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    *_, name = key.split(".")
    slot = key.split(".")[-2] if name in ("encoder", "decoder", "cross") and key.count(".") > 1 else name
    for cls in (m for m in _members(union) if dataclasses.is_dataclass(m)):
        chosen = (f"{key}.kind={cls.kind}", *(f"{key}.{each}" for each in ROOMY.get(cls.kind, [])))
        yield slot, chosen
        yield from ((slot, each) for _, each in _slots(cls, key, chosen))


def _members(hint: Any) -> list[Any]:
    """The choices of a slot, the types of a union; lists of choices are left out: one choice is a list of one."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        return [m for each in get_args(hint) for m in _members(each)]
    return list(config.choices(hint).values()) if config.is_slot(hint) else [hint]


def plan(work: Path, device: str, parts: int, few: int | None = None) -> list[Item]:
    here = [sys.executable, "-m", "tests.gpu.choices", "--work", str(work), "--device", device]
    here += ["--few", str(few)] if few else []
    found = select(few)
    return [
        Item("choices", f"choices {part + 1} of {parts}", [*here, "--part", str(part), "--of", str(parts)],
             [choice.what for choice in found[part::parts]], estimate=100, limit=330)
        for part in range(parts)
    ]  # fmt: skip


def select(few: int | None) -> list[Choice]:
    """All, or so many of each slot."""
    count: dict[str, int] = {}
    chosen = []
    for choice in everything():
        count[choice.slot] = count.get(choice.slot, 0) + 1
        if few is None or count[choice.slot] <= few:
            chosen.append(choice)
    return chosen


# --- one after the other -------------------------------------------------------------------------------------------


def try_out(choice: Choice, work: Path, folder: Path, device: str) -> str:
    """Trained, loaded again in bf16, measured and asked; what was asked."""
    from regard.api import load
    from regard.run import train_recipe

    try:
        chosen = choice.load(work)
    except RegardError as error:
        raise Refused(str(error)) from None
    outcome = train_recipe(chosen, folder, device)
    assert outcome.finished, "it did not come to its end"
    made = load(folder, device, "bf16")
    report = made.recipe.task.evaluate(made, "valid", {})
    assert report["metrics"], "it measured nothing"
    if hasattr(made, "generate") and choice.model != "bilstm_lm":
        (found,) = made.generate("Ba", 1, max_tokens=40)
        assert found.ended, "a text without an end"
        return "generate"
    if hasattr(made, "reply"):
        made.reply(["Ba be bi ."])
        return "reply"
    return "evaluate"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--few", type=int)
    parser.add_argument("--after", type=int, default=0, help="leave out so many of the part's choices")
    given = parser.parse_args()
    os.environ |= {"REGARD_DATA": str(given.work / "made"), "REGARD_CACHE": str(given.work / "cache")}
    mine = select(given.few)[given.part :: given.of]
    for number, choice in enumerate(mine[given.after :], given.after):
        folder = given.work / "choices" / f"{given.part}-{number}"
        print(f"== {choice.what}", flush=True)
        with step(choice.what, group=choice.slot) as row:
            row.note = try_out(choice, given.work, folder, given.device)
        shutil.rmtree(folder, ignore_errors=True)
        if not row.ok and "CUDA" in row.note:  # nothing more can be asked of the device by this process
            rest = [*sys.argv[1:], "--after", str(number + 1)]
            os.execv(sys.executable, [sys.executable, "-m", "tests.gpu.choices", *rest])


if __name__ == "__main__":
    main()
