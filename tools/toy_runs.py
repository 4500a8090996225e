"""Tiny runs of every kind of model and task: their data, their recipes, and commands that show what they learned.

`write_old_runs.py` and `same_bits.py` share them. They know recipes, commands and files, and no module of the package,
so that they mean the same before and after its modules are moved.
"""

import copy
import json
import platform
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

STEPS = 20
WORDS = ["ant", "bee", "cow", "dog", "eel", "fox", "gnu", "hen"]
Recipe = dict[str, Any]
ASKED = "asked.txt"  # what commands read from standard input


@dataclass(frozen=True)
class Run:
    """`recipe` learns from what `write` puts into a folder; `origin`, by name, is trained first for `training.init`."""

    write: Callable[[Path], None]
    recipe: Recipe
    commands: list[str]  # of `regard`; RUN is the folder of the run
    origin: dict[str, Recipe] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        """Data, `recipe.yaml` and the recipes of `origin`, with paths relative to the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.write(folder)
        for name, keys in {**self.origin, "recipe": self.recipe}.items():
            text = yaml.safe_dump(keys, sort_keys=False, default_flow_style=None, width=120)
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


# --- data ------------------------------------------------------------------------------------------------------------


def _lines(folder: Path, name: str, lines: list[str]) -> None:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _sentences(draw: random.Random, count: int) -> list[list[str]]:
    return [draw.choices(WORDS, k=draw.randint(1, 6)) for _ in range(count)]


def pairs(folder: Path) -> None:
    """The target is the source reversed and in capitals."""
    draw = random.Random(0)
    for split, count in (("train", 40), ("valid", 6)):
        rows = _sentences(draw, count)
        _lines(folder, f"{split}.en", [" ".join(row) for row in rows])
        _lines(folder, f"{split}.de", [" ".join(row[::-1]).upper() for row in rows])
    _lines(folder, ASKED, [*(" ".join(row) for row in _sentences(draw, 5)), ""])


def documents(folder: Path) -> None:
    draw = random.Random(1)
    for split, count in (("train", 24), ("valid", 5)):
        parts = [[" ".join(row).capitalize() + " ." for row in _sentences(draw, 3)] for _ in range(count)]
        _lines(folder, f"{split}.txt", ["\n\n".join("\n".join(part) for part in parts)])
    _lines(folder, ASKED, ["Dog [MASK] hen .", "[MASK] fox [MASK] ant bee", "Cow eel ."])


def dialogues(folder: Path) -> None:
    draw = random.Random(2)
    turns = ("do you like {}", "yes I like {}", "will you have {} now", "no {} later")
    for split, count in (("train", 24), ("valid", 4)):
        rows = [(draw.choice(WORDS), draw.randint(2, 4)) for _ in range(count)]
        lines = ["".join(f"{turn.format(word)} __eou__ " for turn in turns[:n]).strip() for word, n in rows]
        _lines(folder, f"{split}.txt", lines)
    _lines(folder, ASKED, ["do you like hen", "will you have fox now"])


def labels(folder: Path) -> None:
    documents(folder)
    draw = random.Random(3)
    for split, count in (("train", 32), ("valid", 8)):
        rows = [(" ".join(row), "early" if row[0] < "e" else "late") for row in _sentences(draw, count)]
        _lines(folder, f"{split}.tsv", ["text\tlabel", *("\t".join(row) for row in rows)])
    _lines(folder, ASKED, ["ant hen hen", "gnu bee", ""])


def tags(folder: Path) -> None:
    documents(folder)
    draw = random.Random(4)
    for split, count in (("train", 32), ("valid", 8)):
        rows = _sentences(draw, count)
        lines = [f"{word} {'B-BIG' if word in ('cow', 'gnu') else 'O'}" for row in rows for word in (*row, "")]
        _lines(folder, f"{split}.conll", [line if line != " O" else "" for line in lines])
    _lines(folder, ASKED, ["ant cow hen", "gnu bee", ""])


# --- recipes ---------------------------------------------------------------------------------------------------------

SIZES = {"layers": 1, "size": 8, "inner": 16, "heads": 2, "dropout": 0.1}


def recipe(end: str, **sections: Any) -> Recipe:
    """`end` is how the files' names end: "en de" are two files. Losses decide what is best: texts may be as good."""
    train, valid = ([f"{split}.{e}" for e in end.split()] for split in ("train", "valid"))
    training = {
        "steps": STEPS,
        "tokens_per_batch": 64,
        # A key's bias has a gradient of rounding errors alone, which a small epsilon would make as large as any other.
        "optimiser": {"epsilon": 1e-4},
        "schedule": {"kind": "constant", "peak": 3e-3},
        "goal": "loss",
        "log_every": 1,
        "validation": {"every": 10},
        "checkpoints": {"every": 10, "keep": 1},
        **sections.pop("training", {}),
    }
    data: dict[str, Any] = {"train": train[0], "valid": valid[0]}
    if len(train) > 1:
        data = {"train": train, "valid": valid, "filters": {"max_length": 40}}
    return copy.deepcopy({"data": data, **sections, "training": training})


LM = {"kind": "lm", "length": 16}
LSTM = {"kind": "bilstm_lm", "layers": 1, "size": 8, "dropout": 0.1}
BERT = {"kind": "bert", **SIZES, "position": {"kind": "learned", "length": 24}}
BERT_TEXT = {"kind": "bert", "size": 36}
PRETRAINING = {"kind": "pretraining", "length": 24}

TRANSLATE = [
    "translate RUN --beam 4 --nbest 3 --json",
    "translate RUN --beam 1 --json",
    "translate RUN --sample --seed 3 --json",
    "evaluate RUN --json",
]
LOOK = ["look RUN dog --json"]
WRITE = [
    "generate RUN dog --greedy --max-tokens 12 --json",
    "generate RUN dog --beam 3 --max-tokens 8 --json",
    "generate RUN dog --seed 5 --samples 2 --max-tokens 12 --json",
    "score RUN --json",
]

RUNS = {
    "transformer-bpe": Run(
        pairs,
        recipe(
            "en de",
            text={"kind": "bpe", "size": 48, "dropout": 0.1},
            model={**SIZES, "position": "sinusoidal"},
            training={"ema": 0.9},
            decoding={"kind": "beam", "size": 3},
        ),
        TRANSLATE + LOOK,
    ),
    "transformer-rotary": Run(
        pairs,
        recipe(
            "en de",
            text={"kind": "word"},
            model={**SIZES, "residual": "pre_norm", "activation": "swiglu", "position": "rotary"},
            training={"accumulate": 2, "clip": 1.0, "checkpoints": {"every": 10, "keep": 2, "average": 2}},
            decoding={"kind": "greedy"},
        ),
        TRANSLATE + LOOK,
    ),
    "decoder_only": Run(
        pairs,
        recipe(
            "en de",
            text={"kind": "bpe", "size": 48},
            model={
                "kind": "decoder_only",
                **SIZES,
                "layers": 2,
                "attention": {"pattern": ["blocks(4)", "full"], "compress": ["none", "strided_conv"]},
            },
            decoding={"kind": "beam", "size": 3},
        ),
        TRANSLATE,
    ),
    "rnn": Run(
        pairs,
        recipe("en de", text={"kind": "word"}, model={"kind": "rnn", "layers": 1, "size": 8, "dropout": 0.1}),
        TRANSLATE + LOOK,
    ),
    "conv": Run(
        pairs,
        recipe(
            "en de",
            text={"kind": "word"},
            model={
                "kind": "conv",
                "layers": 1,
                "size": 8,
                "dropout": 0.1,
                "position": {"kind": "learned", "length": 48},
            },
        ),
        TRANSLATE,
    ),
    "bytenet": Run(
        pairs,
        recipe(
            "en de", text={"kind": "char"}, model={"kind": "bytenet", "dilations": [1, 2], "size": 8, "dropout": 0.1}
        ),
        TRANSLATE,
    ),
    "lm": Run(
        documents,
        recipe(
            "txt",
            task=LM,
            text={"kind": "char"},
            model={**SIZES, "position": "relative", "attention": {"pattern": "window(6) | global(1)"}},
        ),
        WRITE + LOOK,
    ),
    "lstm_lm": Run(
        documents,
        recipe("txt", task=LM, text={"kind": "word"}, model={"kind": "lstm_lm", "layers": 2, "size": 8, "hidden": 12}),
        WRITE,
    ),
    "chat": Run(
        dialogues,
        recipe(
            "txt",
            task={"kind": "chat", "length": 24},
            text={"kind": "word"},
            model={"kind": "lm", **SIZES, "position": "alibi", "attention": {"normalise": "entmax"}},
            decoding={"kind": "sample", "max_extra": 8},
        ),
        ["chat RUN --greedy --json", "chat RUN --seed 4 --json", "chat RUN --beam 3 --json"],
    ),
    "bert": Run(
        documents,
        recipe("txt", task=PRETRAINING, text=BERT_TEXT, model=BERT),
        ["fill RUN --json", "embed RUN --json", *LOOK],
    ),
    "classify-bert": Run(
        labels,
        recipe(
            "tsv",
            task={"kind": "classify", "length": 24, "batch": 6},
            text=BERT_TEXT,
            model=BERT,
            training={"init": "origin", "layerwise": {"divide": 2.0, "unfreeze": 2}},
        ),
        ["classify RUN --json", "evaluate RUN --json"],
        {"origin": recipe("txt", task=PRETRAINING, text=BERT_TEXT, model=BERT)},
    ),
    "tag-elmo": Run(
        tags,
        recipe(
            "conll",
            task={"kind": "tag", "length": 24, "overlap": 4, "batch": 6},
            text=BERT_TEXT,
            model={"kind": "elmo", "embedding": 6, "size": 8, "dropout": 0.1, "features": LSTM},
            training={"init": "origin"},
        ),
        ["tag RUN --json", "evaluate RUN --json"],
        {"origin": recipe("txt", task={**LM, "documents": "line", "boundaries": "marked"}, text=BERT_TEXT, model=LSTM)},
    ),
}


def machine() -> dict[str, str]:
    """What decides the last bits of a computation here: torch, and the instructions that the processor has."""
    import torch

    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(line.partition(":")[2].strip() for line in about.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor()
    return {"torch": torch.__version__, "processor": model, "instructions": torch.backends.cpu.get_cpu_capability()}


def losses(run: Path) -> list[tuple[str, int, float]]:
    """Of every line in a run's log that has one: its kind, step and loss."""
    entries = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(entry["kind"], entry["step"], entry["loss"]) for entry in entries if "loss" in entry]
