"""Training on a GPU by the whole run: repeatable, resumable, copied without waiting, and never with all scores in
memory.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard import recipe as recipes
from regard.accel.training_graph import batch_leaves
from regard.errors import RegardError
from regard.examples.batching import each_batch
from regard.io.tensors import read_tensors
from regard.models.batch import RaggedRows, collate_pairs
from regard.nn.loss import vocabulary_loss
from regard.run import train_recipe
from tests.gpu.test_replay import MARKS
from tests.training import toy

DEVICE = "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def weights(folder: Path, name: str, *steps: int, **training: Any) -> dict[str, Tensor]:
    """Of a run that was stopped after each of these steps but the last, and gone on with."""
    for count in steps:
        train_recipe(recipes.load_recipe(toy.recipe(folder, steps=count, **training)), folder / name, DEVICE)
    return read_tensors(folder / name / "model.safetensors")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    toy.write_corpus(tmp_path)
    return tmp_path


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_deterministic_training_is_bit_exact(corpus: Path, precision: str) -> None:
    first, again = (weights(corpus, name, 12, deterministic=True, precision=precision) for name in "ab")
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_resuming_goes_on_exactly(corpus: Path) -> None:
    """The schedule does not ask how many steps there will be."""
    whole, resumed = weights(corpus, "a", 12, deterministic=True), weights(corpus, "b", 6, 12, deterministic=True)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_resuming_with_recorded_launches(corpus: Path, precision: str) -> None:
    """The same to rounding, as other steps are the first of their shape, which run as usual, after a resumption.

    Adam makes full steps of a rounding where there is no gradient: so losses are compared, not weights.
    """
    weights(corpus, "a", 12, precision=precision, goal="loss")
    weights(corpus, "b", 6, 12, precision=precision, goal="loss")
    results = [json.loads((corpus / name / "results.json").read_text(encoding="utf-8")) for name in "ab"]
    whole, resumed = (each["valid"]["metrics"]["loss"]["value"] for each in results)
    assert resumed == pytest.approx(whole, rel=0.02)


def test_batches_are_copied_without_waiting() -> None:
    draw = np.random.default_rng(0)
    rows = [draw.integers(4, 100, n) for n in draw.integers(2, 14, 40)]
    batch = collate_pairs(RaggedRows.of(rows), RaggedRows.of(rows), MARKS, MARKS).pin()
    tensors = [value for value in batch_leaves(batch) if isinstance(value, Tensor)]
    assert tensors
    assert all(tensor.is_pinned() for tensor in tensors)
    torch.cuda.set_sync_debug_mode("error")
    try:
        moved = batch.to(torch.device(DEVICE))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    for here, there in zip(tensors, [value for value in batch_leaves(moved) if isinstance(value, Tensor)], strict=True):
        assert torch.equal(here, there.cpu())


def test_half_a_batch_where_memory_runs_out() -> None:
    """As `embed`, `score`, `classify` and evaluation compute theirs; what is asked for once more is less."""
    device, done, free = torch.cuda.current_device(), list[list[int]](), 256 * 2**20
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + free) / total)

    def compute(rows: list[int]) -> None:
        torch.zeros(len(rows) * free // 12, dtype=torch.uint8, device=DEVICE)
        done.append(rows)

    try:
        each_batch([list(range(16)), list(range(4))], compute)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert done == [[*range(8)], [*range(8, 16)], [0, 1], [2, 3]]


def test_int8_is_refused(toy_run: Path) -> None:
    with pytest.raises(RegardError, match=r"precision is int8, which is for CPUs, and the device is cuda"):
        regard.load(toy_run, DEVICE, "int8")


def test_the_loss_never_holds_all_scores() -> None:
    rows, entries = 8192, 50_000
    x = torch.randn(rows, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(entries, 64, device=DEVICE, requires_grad=True)
    labels = torch.randint(0, entries, (rows,), device=DEVICE)
    vocabulary_loss(x[:64], weight, labels[:64], 0.1).backward()  # what is compiled and kept
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    vocabulary_loss(x, weight, labels, 0.1).backward()
    assert torch.cuda.max_memory_allocated() - before < rows * entries * 2  # bytes: the scores once, in bf16
    assert x.grad is not None
    assert x.grad.isfinite().all()
