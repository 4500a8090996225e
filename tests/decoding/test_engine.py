"""The engine: refilled rows, fixed storage and early ends change no result, whatever the model."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.accel.decoding_graph import FixedStorage, FixedStorageRunner, bucket
from regard.decoding import Beam, Engine, Greedy, RequestQueue, Sample, SearchSpec
from regard.decoding.beam import BeamSearch
from regard.decoding.contract import GenerationRequest
from regard.decoding.slots import SlotBatch
from regard.models.batch import RaggedRows, collate_pairs
from regard.nn.record import AttentionRecorder
from tests.decoding.small import MODELS, SYMBOLS, batch, plain_beam, queue, sentences
from tests.models import test_transformer
from tests.models.promises import MARKS

SEARCHES = [Greedy(), Beam(size=4), Beam(size=3, penalty="gnmt", length_penalty=0.6), Sample(seed=7)]


@pytest.fixture(scope="module", params=MODELS)
def model(request) -> Any:
    return MODELS[request.param]()


def tokens(found: list[list[Any]]) -> list[list[list[int]]]:
    return [[h.tokens for h in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("config", SEARCHES, ids=str)
def test_refilled_places_and_fixed_storage_change_nothing(model, config) -> None:
    """16 sentences in five slots, and in slots of a fixed shape, give what each gives alone."""
    rows = sentences(16)
    nbest = 2 if isinstance(config, Beam) else 1
    alone = []
    for n, row in enumerate(rows):
        one = RequestQueue.of(batch([row]), [2 * len(row) + 5], [n])
        alone += Engine(model).decode(one, SYMBOLS, config, nbest)
    assert len({tuple(h[0].tokens) for h in alone}) > 5
    for runner in (None, FixedStorageRunner):
        engine = Engine(model, runner)
        for slots in (5, 16):
            found = engine.decode(queue(rows, slots), SYMBOLS, config, nbest)
            assert tokens(found) == tokens(alone)
            for a, b in zip(found, alone, strict=True):
                assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-9)


def test_fixed_storage_is_used_again(model) -> None:
    """The second call finds its slots ready, and what the first left there does not show."""
    engine = Engine(model, FixedStorageRunner)
    first, second = sentences(9, seed=1), sentences(9, seed=2)
    engine.decode(queue(first, 8), SYMBOLS, Beam(size=3))
    assert len(engine.batches) == 1
    found = engine.decode(queue(second, 8), SYMBOLS, Beam(size=3))
    assert len(engine.batches) == 1
    assert tokens(found) == tokens(Engine(model).decode(queue(second, 8), SYMBOLS, Beam(size=3)))


def test_a_call_that_was_interrupted_leaves_nothing() -> None:
    model = MODELS["transformer"]()
    engine, given, config = Engine(model, FixedStorageRunner), queue(sentences(9, seed=1), 8), Beam(size=3)
    engine.begin(given, SearchSpec.of(given, SYMBOLS, config)).step()
    other = queue(sentences(9, seed=1)[:3], 8)
    assert tokens(engine.decode(other, SYMBOLS, config)) == tokens(Engine(model).decode(other, SYMBOLS, config))
    assert len(engine.batches) == 1  # the storage is of one shape


@pytest.mark.parametrize("runner", [None, FixedStorageRunner])
def test_fewer_slots_where_memory_runs_out(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are done stay done, the others are decoded in half as many slots, and later calls begin so."""
    model, rows, config = MODELS["transformer"](), sentences(16), Beam(size=3)
    expected = Engine(model).decode(queue(rows, 8), SYMBOLS, config)
    sizes, step = [], SlotBatch.advance

    def advance(self: SlotBatch) -> None:
        sizes.append(self.size)
        if self.size > 4 and len(sizes) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        step(self)

    monkeypatch.setattr(SlotBatch, "advance", advance)
    engine, done = Engine(model, runner), 0

    def count(more: int) -> None:
        nonlocal done
        done += more

    assert tokens(engine.decode(replace(queue(rows, 8), on_done=count), SYMBOLS, config)) == tokens(expected)
    assert done == 16
    assert max(sizes[:6]) == 8
    assert max(sizes[8:]) <= 4
    sizes[:] = [0] * 6
    assert tokens(engine.decode(queue(rows, 8), SYMBOLS, config)) == tokens(expected)
    assert max(sizes) <= 4


def test_no_memory_for_one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(self: SlotBatch) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(SlotBatch, "advance", advance)
    with pytest.raises(torch.OutOfMemoryError):
        Engine(MODELS["transformer"]()).decode(queue(sentences(5), 4), SYMBOLS, Greedy())


def test_a_batch_that_cannot_be_parted_begins_together() -> None:
    """Also after other requests have shown how little memory there is."""
    rows, engine = sentences(6), Engine(MODELS["transformer"]())
    whole = RequestQueue.of(batch(rows), [8] * 6)
    expected = engine.decode(whole, SYMBOLS, Greedy())
    engine.most_tokens = 3 * 8
    assert tokens(engine.decode(whole, SYMBOLS, Greedy())) == tokens(expected)


@pytest.mark.parametrize("alpha, kind", [(0.0, "power"), (1.0, "power"), (-0.5, "power"), (2.0, "gnmt")])
def test_beams_are_those_of_the_plain_search(model, alpha: float, kind: str) -> None:
    """One hypothesis at a time, each read anew, until `size` have ended: the same n-best, the same scores."""
    config = Beam(size=3, length_penalty=alpha, penalty=kind)
    rows = sentences(3, seed=3, longest=5)
    found = Engine(model).decode(queue(rows, 2), SYMBOLS, config, 2)
    for row, hypotheses in zip(rows, found, strict=True):
        with torch.no_grad():
            expected = plain_beam(model, batch([row]), 2 * len(row) + 5, config, 2)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in expected]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], abs=1e-9)


class _Patient(BeamSearch):
    """Waits until enough have ended, or the limit comes, even if the result is known."""

    def _decided(self) -> torch.Tensor:
        return torch.zeros_like(self.done)


@pytest.mark.parametrize("alpha, most", [(0.0, 0.6), (0.6, 0.9), (1.0, 1.0)])
def test_an_early_end_is_exact(monkeypatch, alpha: float, most: float) -> None:
    """It saves steps, more where length is worth less, and changes nothing."""
    from regard.decoding import requests as module
    from tests.decoding.test_search import Table, one

    config, steps = Beam(size=4, length_penalty=alpha), {}
    for kind in (BeamSearch, _Patient):
        monkeypatch.setattr(module, "BeamSearch", kind)
        found = []
        steps[kind] = 0
        for seed in range(60):
            table = Table(9, seed)
            table.logits[..., 3] += 1.5
            step = table.step

            def counted(tokens, state, step=step, kind=kind):
                steps[kind] += 1
                return step(tokens, state)

            table.step = counted
            found.append(Engine(table).decode(RequestQueue.of(one(), [14]), SYMBOLS, config, 1))
        steps[kind] = steps[kind], [tokens(f) for f in found]
    assert steps[BeamSearch][1] == steps[_Patient][1]
    assert steps[BeamSearch][0] < most * steps[_Patient][0]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_asking_for_fewer_gives_the_first_of_more(alpha: float) -> None:
    """A search for one sentence may end earlier than one for four, and finds the same best one."""
    from tests.decoding.test_search import Table, one

    config = Beam(size=4, length_penalty=alpha)
    for seed in range(60):
        table = Table(9, seed)
        table.logits[..., 3] += 1.5
        every, *fewer = (
            tokens(Engine(table).decode(RequestQueue.of(one(), [14]), SYMBOLS, config, count))[0]
            for count in (4, 3, 2, 1)
        )
        assert len(every) == 4
        assert fewer == [every[:3], every[:2], every[:1]]


def test_recorded_weights_follow_the_beams() -> None:
    """What is recorded while beams branch is what the whole sequence, read at once, looks at."""
    model = MODELS["transformer"]()
    rows = sentences(4, seed=5)
    record = AttentionRecorder()
    found = Engine(model).decode(
        RequestQueue.of(batch(rows), [2 * len(row) + 5 for row in rows]), SYMBOLS, Beam(size=4), 3, record
    )
    assert sum(len(h) for h in found) > 6
    for row, hypotheses in zip(rows, found, strict=True):
        for h in hypotheses:
            whole = AttentionRecorder()
            with torch.no_grad():
                model(collate_pairs(RaggedRows.of([row]), RaggedRows.of([h.tokens]), MARKS, MARKS), whole)
            expected = whole.trace([0])
            assert set(h.attention) == {"encoder", "decoder", "cross"}
            source, said = len(row) + 1, len(h.tokens) + 1
            torch.testing.assert_close(h.attention["cross"][..., :source], expected["cross"], atol=1e-9, rtol=0)
            torch.testing.assert_close(h.attention["decoder"][..., :said], expected["decoder"], atol=1e-9, rtol=0)
            assert h.attention["decoder"].shape[2] == said


class _Endless:
    """Never ends by itself."""

    def __init__(self, model: Any) -> None:
        self.model, self.start = model, model.start

    def step(self, tokens: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        logits, state = self.model.step(tokens, state)
        return logits - 50 * torch.nn.functional.one_hot(torch.tensor(3), logits.shape[-1]), state


def test_a_row_that_is_done_may_stay_as_long_as_others_go_on() -> None:
    """The first sentence is done long before the third, which came later; there are no positions for as many words."""
    model = _Endless(test_transformer.build(40, position={"kind": "learned", "length": 20}))
    model.longest = 20
    rows = sentences(3, longest=6)
    given = queue(rows, 2)
    given.requests = [GenerationRequest(limit) for limit in (18, 15, 19)]
    found = Engine(model, FixedStorageRunner).decode(given, SYMBOLS, Beam(size=2))
    assert [len(h[0].tokens) for h in found] == [18, 15, 19]
    assert tokens(found) == tokens(Engine(model).decode(given, SYMBOLS, Beam(size=2)))


def test_buckets() -> None:
    assert [bucket(n) for n in (1, 16, 17, 64, 65)] == [16, 16, 32, 64, 128]
    assert [bucket(n, 1) for n in (1, 2, 3, 64)] == [1, 2, 4, 64]


class _Thing:
    def __init__(self) -> None:
        self.a, self.b = torch.tensor([1.0]), {"x": torch.tensor([2.0]), "y": [torch.tensor([3.0])]}
        self.deep = (self.b, torch.tensor([9.0]))


def test_tensors_stay_where_they_are() -> None:
    """What takes a tensor's place is copied into it, also where one tensor becomes a view of another."""
    thing = _Thing()
    storage = FixedStorage(thing)
    before = [thing.a, thing.b["x"], thing.b["y"][0]]
    thing.a, thing.b["x"], thing.b["y"][0] = thing.b["x"].view(1), thing.a.view(1), torch.tensor([7.0])
    storage.copy_back()
    assert [t.item() for t in before] == [2.0, 1.0, 7.0]
    assert thing.a is before[0]
    assert thing.b["x"] is before[1]
    assert thing.b["y"][0] is before[2]
    thing.a = torch.zeros(2)
    with pytest.raises(RuntimeError, match="made"):
        storage.copy_back()
