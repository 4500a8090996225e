"""Small trained models, and one server that has several of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard import recipe as recipes
from regard.run import train_recipe
from tests.serve.live import Server
from tests.tasks import bert_toy, chat_toy, lm_toy, toys


@pytest.fixture(scope="session")
def lm_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served_lm")
    lm_toy.write_text(folder)
    train_recipe(recipes.load_recipe(lm_toy.recipe(folder, steps=20, documents="file")), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture(scope="session")
def bert_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served_bert")
    bert_toy.write_text(folder)
    train_recipe(recipes.load_recipe(bert_toy.recipe(folder, steps=6)), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture(scope="session")
def choose_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served_choose")
    rows = [{"context": f"the {a} sat", "question": "who sat ?", "options": ["the cat", "the dog"], "answer": n}
            for n, a in enumerate(["cat", "dog"])]  # fmt: skip
    for name in ("train.jsonl", "valid.jsonl"):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows * 8), encoding="utf-8")
    toys.trained(toys.recipe(folder, {"kind": "choose"}, ("train.jsonl", "valid.jsonl"), steps=4), folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def chat_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served_chat")
    chat_toy.write(folder)
    train_recipe(recipes.load_recipe(chat_toy.recipe(folder)), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture(scope="session")
def models(toy_run: Path, lm_run: Path, bert_run: Path, choose_run: Path, chat_run: Path) -> list[str]:
    runs = {"toy": toy_run, "lm": lm_run, "bert": bert_run, "choose": choose_run, "chat": chat_run}
    return [f"{name}={run}" for name, run in runs.items()]


@pytest.fixture(scope="session")
def server(models: list[str]) -> Iterator[Server]:
    with Server(*models, "--patience", "3", "--max-tokens", "100000") as made:
        yield made
