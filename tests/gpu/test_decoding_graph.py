"""Steps captured as CUDA graphs give what ordinary steps give, for every kind of model and search."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.accel.decoding_graph import CudaGraphRunner, FixedStorageRunner
from regard.accel.inference_weights import inference_weights
from regard.decoding import Beam, Blockwise, Engine, Greedy, Sample, Speculative
from tests.decoding.small import ENTRIES, MODELS, SYMBOLS, queue, sentences
from tests.models import test_transformer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("config", [Greedy(), Beam(size=4), Beam(size=3, penalty="gnmt"), Sample(seed=7)], ids=str)
def test_captured_steps_are_ordinary_ones(name: str, config: Any) -> None:
    """In float64: refilled places, several buckets, and storage used again by a second call."""
    made: list[CudaGraphRunner] = []

    def captured() -> FixedStorageRunner:
        made.append(CudaGraphRunner())
        return made[-1]

    engine, plain = Engine(MODELS[name]().cuda(), captured), Engine(MODELS[name]())
    for seed in (0, 1):
        rows = sentences(24, seed, longest=14)
        expected = plain.decode(queue(rows, 6), SYMBOLS, config)
        found = engine.decode(queue(rows, 6, "cuda"), SYMBOLS, config)
        assert [h[0].tokens for h in found] == [h[0].tokens for h in expected]
        assert [h[0].score for h in found] == pytest.approx([h[0].score for h in expected], abs=1e-8)
    assert made
    assert all(runner.failure == "" for runner in made)
    assert max(len(runner.graphs) for runner in made) > 1


@pytest.mark.parametrize(
    "config",
    [
        Speculative(),
        Speculative(draft="layers(1)", tokens=3),
        Speculative(draft="another", tokens=2),
        Speculative(draft="another", temperature=1.0, top_p=0.9, repetition_penalty=1.2),
        Blockwise(),
    ],
    ids=str,
)
def test_captured_guesses_are_ordinary_ones(config: Any) -> None:
    """In float64, in slots that are refilled; and what is drawn depends on the request alone."""
    model, other = test_transformer.build(ENTRIES, proposals=4), test_transformer.build(ENTRIES, layers=1)
    rows = sentences(24, longest=14)
    expected = Engine(model, load_draft=lambda name: other).decode(queue(rows, 6), SYMBOLS, config)
    engine = Engine(copy.deepcopy(model).cuda(), load_draft=lambda name: copy.deepcopy(other).cuda())
    found = engine.decode(queue(rows, 6, "cuda"), SYMBOLS, config)
    assert [h[0].tokens for h in found] == [h[0].tokens for h in expected]
    assert [h[0].score for h in found] == pytest.approx([h[0].score for h in expected], abs=1e-8)
    (batch,) = engine.batches.values()
    assert batch.runner.failure == ""
    assert batch.runner.graphs
    acceptance = engine.acceptance(config)
    assert acceptance.steps < acceptance.tokens
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("config", [Greedy(), Beam(size=4)], ids=str)
def test_half_precision(config: Any) -> None:
    """Captured or not, bf16 begins nearly always as float32 does; storage of other sizes rounds otherwise."""
    model = MODELS["transformer"]().float().cuda()
    rows = sentences(32, longest=14)
    fast = inference_weights(model, torch.bfloat16)
    given = queue(rows, 8, "cuda")
    exact = Engine(model).decode(replace(given, dummy_batch=None), SYMBOLS, config)
    for batches in (given, replace(given, dummy_batch=None)):
        found = Engine(fast).decode(batches, SYMBOLS, config)
        assert sum(a[0].tokens[:1] == b[0].tokens[:1] for a, b in zip(found, exact, strict=True)) > 24


def test_no_step_waits_for_the_device() -> None:
    """Between two looks nothing asks the device for a number."""
    model = inference_weights(MODELS["transformer"]().float().cuda(), torch.bfloat16)
    engine = Engine(model)
    rows = sentences(8)
    engine.decode(queue(rows, 8, "cuda"), SYMBOLS, Beam(size=4))
    (batch,) = engine.batches.values()
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("fixed", [True, False])
def test_fewer_slots_where_memory_runs_out(fixed: bool) -> None:
    """A process that may take only so much memory decodes the same, a part at a time."""
    model, rows, config = MODELS["transformer"]().cuda(), sentences(4096, longest=14), Beam(size=4)
    given = queue(rows, 2048, "cuda") if fixed else replace(queue(rows, 2048, "cuda"), dummy_batch=None)
    expected = Engine(model).decode(replace(given, slots=64), SYMBOLS, config)
    torch.cuda.empty_cache()
    engine, total = Engine(model), torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 96 * 2**20) / total)
    try:
        found = engine.decode(given, SYMBOLS, config)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert engine.most_tokens is not None  # memory did run out
    assert [h[0].tokens for h in found] == [h[0].tokens for h in expected]
