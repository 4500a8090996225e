"""The code that a GPU runs, on a CPU, as the program runs it: train, validate, save, resume, load, use.

Triton interprets the kernels, the branches are a GPU's, steps of decoding run in fixed storage as a graph's do, and
types follow CUDA's rules (`tests/cuda_types.py`), in every precision and with every choice that changes a type.
What only a real GPU can show is listed in tests/gpu/README.md.
"""

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import recipe as recipes
from regard.accel import decoding_graph as graph
from regard.accel import inference_weights as frozen
from regard.accel import launch, linear, norm
from regard.accel import packed_attention as short
from regard.accel.training_graph import batch_leaves
from regard.decoding import slots
from regard.nn import dispatch
from regard.run import train_recipe
from regard.training.loop import Trainer
from tests.cuda_types import NoHostReads, cuda_types
from tests.tasks import bert_toy, chat_toy, lm_toy, test_answer, test_classify, test_tag
from tests.test_device import full
from tests.training import toy


class CheckedRunner(graph.FixedStorageRunner):
    """Steps of decoding of a width that was seen before, where a GPU would replay a graph: no value is read."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def run_at_width(self, step: Any, width: int) -> None:
        with NoHostReads() if width in self.seen else contextlib.nullcontext():
            super().run_at_width(step, width)
        self.seen.add(width)


class LateRead(slots.DelayedRead):
    """The host learns what was so some steps ago, as of a GPU."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.delay = slots.DELAY

    def push(self, tensor: torch.Tensor) -> None:
        self.pending.append((tensor.clone(), None))


@pytest.fixture
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dispatch, "DEVICES", {"cpu"})
    monkeypatch.setattr(frozen, "PACKS", False)  # oneDNN's layout is a CPU's
    monkeypatch.setattr(graph, "RUNNERS", {"cpu": CheckedRunner})
    monkeypatch.setattr(slots, "DelayedRead", LateRead)
    monkeypatch.setattr(short, "PROGRAMS", {16: 2, 32: 2, 64: 1, 128: 1})  # each is interpreted by itself
    monkeypatch.setattr(norm, "PROGRAMS", 2)
    monkeypatch.setattr(linear, "SPLITS", 2)
    with cuda_types():
        yield


class CheckedMicroBatch:
    """A micro-batch whose shape was seen before, where a GPU would capture it: the host must not read a value."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.seen: set[Any] = set()
        self.graphs: dict[Any, Any] = {}
        self.full = False
        self.checked = self.cleared = 0

    def clear(self) -> None:
        self.seen.clear()
        self.cleared += 1

    def __call__(self, batch: Any) -> torch.Tensor:
        leaves = batch_leaves(batch)
        key = tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in leaves)
        with NoHostReads() if key in self.seen else contextlib.nullcontext():
            self.checked += key in self.seen
            self.seen.add(key)
            return self.trainer._loss_and_backward(batch, self.trainer.loss_factor)


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> list[CheckedMicroBatch]:
    """All trainers work as on a GPU that captures steps; the stand-ins of their graphs."""
    made: list[CheckedMicroBatch] = []
    init = Trainer.__init__

    def build(self: Trainer, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        made.append(CheckedMicroBatch(self))
        self.replay = made[-1]  # type: ignore[assignment]

    monkeypatch.setattr(Trainer, "__init__", build)
    monkeypatch.setattr(Trainer, "stream", lambda self: contextlib.nullcontext())
    monkeypatch.setattr(launch, "call_seed", lambda dropout: random.getrandbits(31) if dropout else 0)  # of the host
    return made


# --- choices -------------------------------------------------------------------------------------------------------

POSITIONS = ["sinusoidal", "learned", "relative", "rotary", "alibi", "t5", "none"]
FACTORS: dict[str, list[Any]] = {
    "position": [{"kind": name, "length": 300} if name == "learned" else name for name in POSITIONS],
    "activation": ["relu", "gelu", "swish", "swiglu"],
    "model": ["transformer", "lm", "bert", "chat"],
    "residual": ["post_norm", "pre_norm", "none"],
    "norm": ["layer", "batch"],
    "precision": ["bf16", "float32"],
    "attention": [{}, {"dropout": 0.1}],
}
BEGIN = (0, 0, 0, 0, 0, 0, 0)  # what a recipe has that says nothing: sinusoidal, relu, post_norm, bf16


def pairwise(sizes: list[int], first: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Few rows of choices in which every two choices of two factors meet; by always taking the row with most new."""
    factors = range(len(sizes))
    wanted = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(factors, 2)
        for x, y in itertools.product(range(sizes[a]), range(sizes[b]))
    }
    rows, row = [], first
    while True:
        rows.append(row)
        wanted -= set(itertools.combinations(enumerate(row), 2))
        if not wanted:
            return rows
        fixed = dict(min(wanted))  # a pair that is missing; the rest by what it adds
        for factor in factors:
            if factor not in fixed:
                fixed[factor] = max(
                    range(sizes[factor]),
                    key=lambda value, factor=factor: sum(
                        tuple(sorted(((factor, value), other))) in wanted for other in fixed.items()
                    ),
                )
        row = tuple(fixed[factor] for factor in factors)


ROWS = [
    {name: values[index] for (name, values), index in zip(FACTORS.items(), row, strict=True)}
    for row in pairwise([len(values) for values in FACTORS.values()], BEGIN)
]


def named(row: dict[str, Any]) -> str:
    shown = (next(iter(value.values()), "") if isinstance(value, dict) else value for value in row.values())
    return "-".join(map(str, shown))


# --- runs ----------------------------------------------------------------------------------------------------------


def small(
    model: dict[str, Any], row: dict[str, Any], training: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two layers of 16 with these choices, and two steps."""
    chosen = {key: row[key] for key in ("position", "activation", "residual", "norm", "attention")}
    sizes = {"layers": 2, "size": 16, "inner": 16, "heads": 1, "dropout": 0.1}
    return {**model, **sizes, **chosen}, {**training, **steps(row["precision"])}


def steps(precision: str) -> dict[str, Any]:
    return {
        "steps": 2,
        "tokens_per_batch": 48,
        "precision": precision,
        "schedule": {"kind": "constant", "peak": 1e-3},
        "log_every": 1,
        "ema": 0.5,
        "validation": {"every": 2, "lines": 2},
        "checkpoints": {"every": 1},
    }


def translation(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    toy.write_corpus(folder, train=20, valid=3)
    made = toy.recipe(folder)
    model, training = small(made["model"], row, made["training"])
    training["validation"] |= {"decoding": {"kind": "beam", "size": 2, "max_extra": 4}}
    return made | {"model": model, "training": training, "decoding": {"kind": "beam", "size": 2, "max_extra": 4}}


def language(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    lm_toy.write_text(folder, documents=8)
    made = lm_toy.recipe(folder)
    model, training = small({"kind": "lm"}, row, made["training"])
    return made | {"model": model, "training": training, "decoding": {"kind": "sample"}}


def pretraining(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    bert_toy.write_text(folder, documents=8)
    made = bert_toy.recipe(folder)
    model, training = small({"kind": "bert"}, row, made["training"])
    training["validation"]["lines"] = 0
    return made | {"model": model, "training": training}


def chat(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    chat_toy.write(folder, train=8, valid=1)
    made = chat_toy.recipe(folder)
    model, training = small({"kind": "transformer"}, row, made["training"])
    return made | {"model": model, "training": training}


RECIPES: dict[str, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {
    "transformer": translation,
    "lm": language,
    "bert": pretraining,
    "chat": chat,
}
USES: dict[str, Callable[[Any], Any]] = {
    "translation": lambda model: model.translate(["w1 w2 w3", "", "w4"]),
    "lm": lambda model: model.generate("the cat", max_tokens=18),  # by the recipe's search, past the context
    "pretraining": lambda model: model.fill(["cat [MASK] ."]),
    "chat": lambda model: (model.reply(["do you like tea"], max_tokens=3), model.reply(["hi"], beam=2, max_tokens=3)),
    "classify": lambda model: model.classify(["w1 great w2", ""]),
    "tag": lambda model: model.tag(["w1 ann w2"]),
    "answer": lambda model: model.answer([("thing", "w1 cat. w2 red.")]),
}


def goes_through(made: dict[str, Any], folder: Path) -> None:
    """Two steps, a validation, a checkpoint; one more step from it; the model as it is loaded, in both precisions."""
    run, training = folder / "run", made["training"]
    train_recipe(recipes.load_recipe(made), run, "cpu")
    train_recipe(recipes.load_recipe(made | {"training": {**training, "steps": 3}}), run, "cpu")
    state = json.loads((run / "last" / "state.json").read_text())
    assert state["step"] == 3
    assert all(value == value for value in state["metrics"].values())
    kind = made.get("task", {"kind": "translation"})["kind"]
    for precision in ("float32", "bf16"):
        model = regard.load(run, "cpu")
        if precision == "bf16":
            if not hasattr(model, "precision"):
                continue
            model.precision = precision
        assert USES[kind](model)


def values(row: dict[str, Any]) -> set[tuple[str, str]]:
    return {(name, str(value)) for name, value in row.items()}


def rows_by_need() -> list[Any]:
    """All rows; those in which no value is met for the first time are slow tests."""
    met: set[tuple[str, str]] = set()
    rows = []
    for row in ROWS:
        rows.append(pytest.param(row, marks=[pytest.mark.slow] if values(row) <= met else [], id=named(row)))
        met |= values(row)
    return rows


@pytest.mark.parametrize("row", rows_by_need())
def test_every_choice(as_gpu: None, tmp_path: Path, row: dict[str, Any]) -> None:
    goes_through(RECIPES[row["model"]](tmp_path, row), tmp_path)


SLOTS: dict[str, dict[str, Any]] = {  # the rarer choices of attention, several in one model
    "scores": {
        "encoder": {"score": "general", "pattern": "window(2) | global(1)"},
        "decoder": {"score": "additive"},
        "cross": {"score": "concat"},
    },
    "normalisers": {
        "encoder": {"score": "cosine", "normalise": "sparsemax", "compress": "strided_conv"},
        "decoder": {"normalise": "entmax", "pattern": "window(2)", "projection": "shared"},
        "cross": {"normalise": "hard"},
    },
    "compressors": {
        "encoder": {"compress": {"kind": "linformer", "length": 257, "size": 8}},
        "decoder": {"compress": "strided_conv", "d_k": 8, "d_v": 32},
        "cross": {"score": "dot", "pattern": "local_p(2)"},
    },
}


@pytest.mark.parametrize("name", SLOTS)
def test_every_slot_of_attention(as_gpu: None, tmp_path: Path, name: str) -> None:
    row = ROWS[0] | {"attention": SLOTS[name], "position": {"kind": "sinusoidal", "join": "concat"}}
    made = translation(tmp_path, row)
    made["model"] |= {"share": "none", "output_bias": True, "inner_dropout": 0.1}
    goes_through(made, tmp_path)


@pytest.mark.parametrize(
    "model, kind", [pytest.param("transformer", "ssru", marks=pytest.mark.slow), ("lm", "average")]
)
def test_recurrences_in_the_place_of_attention(
    as_gpu: None, capturing: list[CheckedMicroBatch], tmp_path: Path, model: str, kind: str
) -> None:
    made = RECIPES[model](tmp_path, ROWS[0])
    made["model"] |= {"decoder_self": kind}
    goes_through(made, tmp_path)


# --- models without these choices ----------------------------------------------------------------------------------

OTHERS: dict[str, dict[str, Any]] = {
    "rnn": {"kind": "rnn", "size": 16},
    "luong": {"kind": "rnn", "preset": "luong", "size": 16},
    "conv": {"kind": "conv", "layers": 1, "size": 16},
    "bytenet": {"kind": "bytenet", "sets": 1, "dilations": [1, 2], "size": 16},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_that_translate(as_gpu: None, tmp_path: Path, name: str) -> None:
    toy.write_corpus(tmp_path, train=20, valid=3)
    made = toy.recipe(tmp_path) | {"model": OTHERS[name]}
    made["training"] |= steps("bf16")
    goes_through(made, tmp_path)


def test_lstm_language_models_and_what_stands_on_them(as_gpu: None, tmp_path: Path) -> None:
    """ULMFiT: a language model, then a classifier that begins with it."""
    test_classify.write_texts(tmp_path, (12, 4))
    lines = (tmp_path / "train.tsv").read_text().splitlines()[1:]
    (tmp_path / "text.txt").write_text("\n\n".join(line.split("\t")[0] for line in lines) + "\n")
    text, model = str(tmp_path / "text.txt"), {"kind": "lstm_lm", "layers": 2, "size": 16, "hidden": 16}
    data = {"train": text, "valid": text, "cache": str(tmp_path / "cache")}
    made = {"task": {"kind": "lm", "length": 8}, "data": data, "text": "word", "model": model}
    goes_through(made | {"training": steps("bf16")}, tmp_path)
    tuned = steps("bf16") | {"init": str(tmp_path / "run"), "layerwise": {"unfreeze": 1}}
    tuned.pop("tokens_per_batch")
    data |= {"train": str(tmp_path / "train.tsv"), "valid": str(tmp_path / "valid.tsv")}
    made |= {"task": {"kind": "classify", "length": 8, "batch": 4}, "data": data, "training": tuned}
    goes_through(made, tmp_path / "tuned")


def test_elmo(as_gpu: None, tmp_path: Path) -> None:
    test_tag.write_sentences(tmp_path)
    words = {line.split()[0] for line in (tmp_path / "train.conll").read_text().splitlines() if line.strip()}
    (tmp_path / "text.txt").write_text("\n".join(sorted(words)) + "\n")
    text, features = str(tmp_path / "text.txt"), {"kind": "bilstm_lm", "layers": 1, "size": 16}
    data = {"train": text, "valid": text, "cache": str(tmp_path / "cache")}
    task = {"kind": "lm", "documents": "line", "boundaries": "marked", "length": 8}
    made = {"task": task, "data": data, "text": "word", "model": features, "training": steps("bf16")}
    train_recipe(recipes.load_recipe(made), tmp_path / "bilm", "cpu")
    tuned = steps("bf16") | {"init": str(tmp_path / "bilm")}
    tuned.pop("tokens_per_batch")
    data |= {"train": str(tmp_path / "train.conll"), "valid": str(tmp_path / "valid.conll")}
    model = {"kind": "elmo", "embedding": 8, "size": 16, "features": features}
    made |= {"task": {"kind": "tag", "length": 32, "overlap": 6, "batch": 4}, "data": data, "model": model}
    goes_through(made | {"training": tuned}, tmp_path)


def test_a_bert_that_answers_and_one_whose_states_are_read(
    as_gpu: None, capturing: list[CheckedMicroBatch], tmp_path: Path
) -> None:
    context = "w1 cat. w2 red. w3"
    given = test_answer.squad([(context, [test_answer.asked("1", "thing", context, "cat")])])
    for name in ("train.json", "valid.json"):
        (tmp_path / name).write_text(given)
    data = {split: str(tmp_path / f"{split}.json") for split in ("train", "valid")}
    model = {"kind": "bert", "layers": 1, "size": 16, "inner": 16, "heads": 1}
    tuned = steps("bf16")
    tuned.pop("tokens_per_batch")
    made = {
        "task": test_answer.TASK,
        "data": data | {"cache": str(tmp_path / "cache")},
        "text": "word",
        "model": model | {"position": {"kind": "learned", "length": 64}},
        "training": tuned,
    }
    goes_through(made, tmp_path)
    test_tag.write_sentences(tmp_path)
    features = {"layers": "0,1", "lstm": 0}
    made["task"] = {"kind": "tag", "length": 32, "overlap": 6, "batch": 4, "frozen_features": features}
    made["data"] |= {split: str(tmp_path / f"{split}.conll") for split in ("train", "valid")}
    goes_through(made | {"training": tuned | {"init": str(tmp_path / "run")}}, tmp_path / "tagger")
    assert capturing[-2].checked


# --- what a step of training has besides a batch, and several tokens at a step of decoding -------------------------


def proposes(folder: Path) -> dict[str, Any]:
    """Its heads are drawn on the host, and their labels found there: never part of a graph."""
    made = language(folder, ROWS[0])
    made["task"] |= {"boundaries": "marked"}
    made["model"] |= {"proposals": 3}
    return made | {"decoding": {"kind": "blockwise"}}


def remembers(folder: Path) -> dict[str, Any]:
    made = language(folder, ROWS[0])
    made["task"] |= {"boundaries": "marked"}
    made["model"] |= {"memory": 8, "position": "transformer_xl"}
    made["training"] |= {"optimiser": {"kind": "adafactor"}}
    return made


def reads_pairs(folder: Path) -> dict[str, Any]:
    """With bounded caches, and with unbounded ones while several tokens are checked."""
    toy.write_corpus(folder, train=20, valid=3)
    made = toy.recipe(folder)
    attention = {"pattern": ["blocks(4)", "full"], "compress": ["none", "strided_conv"]}
    made["model"] = {"kind": "decoder_only", "layers": 2, "size": 16, "inner": 16, "heads": 1, "attention": attention}
    made["model"] |= {"source_weight": 0.5}
    made["training"] |= steps("bf16")
    made["training"]["validation"] |= {"decoding": {"kind": "speculative", "draft": "layers(1)", "tokens": 2}}
    return made


def classifies(folder: Path) -> dict[str, Any]:
    """A GPT with a head."""
    test_classify.write_texts(folder, (24, 4))
    data = {"train": str(folder / "train.tsv"), "valid": str(folder / "valid.tsv"), "cache": str(folder / "cache")}
    model = {"kind": "lm", "layers": 2, "size": 16, "inner": 16, "heads": 1, "position": "rotary"}
    training = steps("bf16")
    training.pop("tokens_per_batch")
    return {
        "task": {"kind": "classify", "length": 8, "batch": 4},
        **{"data": data, "text": "word", "model": model, "training": training},
    }


NEWER: dict[str, tuple[Callable[[Path], dict[str, Any]], bool]] = {  # the recipe, and whether steps are captured
    "proposals": (proposes, False),
    "memory": (remembers, False),
    "decoder_only": (reads_pairs, False),
    "a GPT that classifies": (classifies, True),
}


@pytest.mark.parametrize("name", NEWER)
def test_what_came_later(as_gpu: None, capturing: list[CheckedMicroBatch], tmp_path: Path, name: str) -> None:
    make, captured = NEWER[name]
    goes_through(make(tmp_path), tmp_path)
    assert bool(capturing[0].checked) == captured


def test_memory_that_runs_out_beside_graphs(
    capturing: list[CheckedMicroBatch], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The step is done again without graphs, and learns the same: half of its gradients were there already."""
    lm_toy.write_text(tmp_path, documents=8)
    made = lm_toy.recipe(tmp_path, steps=4)
    made["training"] |= {"accumulate": 2}
    train_recipe(recipes.load_recipe(made), tmp_path / "whole", "cpu")
    full(monkeypatch, 3)
    train_recipe(recipes.load_recipe(made), tmp_path / "again", "cpu")
    assert (capturing[0].full, capturing[1].full) == (False, True)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]


CAPTURED: dict[str, dict[str, Any]] = {  # in a BERT, whose batches are padded
    "plain": {},
    "batch norm": {"norm": "batch"},
    "bigbird": {"attention": {"pattern": "bigbird(4, global=1, random=1)"}},
    "relative": {"position": "relative"},
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_steps_read_nothing(
    as_gpu: None, capturing: list[CheckedMicroBatch], tmp_path: Path, name: str
) -> None:
    made = pretraining(tmp_path, ROWS[0] | CAPTURED[name])
    made["training"] |= {"steps": 8, "checkpoints": {"every": 8}}
    train_recipe(recipes.load_recipe(made), tmp_path / "run", "cpu")
    assert bool(capturing[0].checked) == (name not in ("batch norm", "bigbird"))


def test_captured_steps_follow_the_layers_that_predict(
    as_gpu: None, capturing: list[CheckedMicroBatch], tmp_path: Path
) -> None:
    """Of two layers the first predicts in a quarter of 4 steps: one set of graphs before, and one after."""
    made = language(tmp_path, ROWS[0])
    made["task"] |= {"boundaries": "marked"}
    made["model"] |= {"layer_losses": True, "targets": 2, "position": {"kind": "learned_per_layer", "length": 32}}
    made["training"] |= {"steps": 4, "validation": {"every": 9, "lines": 1}, "checkpoints": {"every": 9}, "ema": 0.0}
    made["training"] |= {"optimiser": {"kind": "muon"}}
    train_recipe(recipes.load_recipe(made), tmp_path / "run", "cpu")
    assert (capturing[0].cleared, capturing[0].checked) == (2, 2)


def test_few_rows_cover_every_pair() -> None:
    assert len(ROWS) <= 30
    for a, b in itertools.combinations(FACTORS, 2):
        met = {(str(row[a]), str(row[b])) for row in ROWS}
        assert len(met) == len(FACTORS[a]) * len(FACTORS[b])


def test_torch_runs_under_the_rules(as_gpu: None) -> None:
    with pytest.raises(RuntimeError, match="same dtype"):
        torch._addmm_activation(torch.ones(4), torch.ones(2, 4, dtype=torch.bfloat16), torch.ones(4, 4))
