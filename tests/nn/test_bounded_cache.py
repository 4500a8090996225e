"""Bounded caches give what unbounded ones give, to the last digits, and hold no more than may still be seen."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from regard import config
from regard.accel.decoding_graph import FixedStorageRunner, Steppable
from regard.decoding import Beam, DecodingConfig, Engine, GenerationRequest, Greedy, RequestQueue, Symbols
from regard.models.batch import TextBatch, collate_texts
from regard.models.lm import LanguageModel, LanguageModelConfig
from regard.models.state import DecoderState
from regard.nn import MultiHeadAttention
from regard.nn.cache import BoundedKVCache, KVCache, SlotRing
from regard.nn.multi_head import MultiHeadAttention as Layer
from regard.nn.pattern import Pattern, Retention
from tests.cuda_types import NoHostReads

SYMBOLS = Symbols(bos=2, eos=3, suppressed=(0, 2))
POSITIONS: dict[str, Any] = {
    "none": "none",
    "rotary": "rotary",
    "alibi": "alibi",
    "t5": {"kind": "t5", "buckets": 8, "distance": 12},
    "relative": {"kind": "relative", "distance": 5},
    "transformer_xl": "transformer_xl",
    "sinusoidal": "sinusoidal",
    "learned": {"kind": "learned", "length": 64},
}
CONV = {"kind": "strided_conv", "factor": 3}
CHOICES: dict[str, dict[str, Any]] = {
    "window": {"pattern": "window(4)"},
    "windows of several sizes, and full": {"pattern": ["window(2)", "full", "window(9)"]},
    "beside the first": {"pattern": "window(3) | global(2)"},
    "both": {"pattern": "window(7) & (window(4) | global(3))"},
    "blocks": {"pattern": "bigbird(block=4, window=3, global=1, random=0)"},
    "compressed": {"compress": CONV},
    "compressed in a window": {"compress": [CONV, "none"], "pattern": "window(7)", "score": "additive"},
    "compressed beside the first": {"compress": [CONV, "none"], "pattern": "window(5) | global(3)"},
    "a hard region": {"pattern": "window(4)", "normalise": {"kind": "hard", "width": 3}},
    "compressed, a hard region": {"compress": CONV, "normalise": {"kind": "hard", "width": 3}},
    "grouped keys": {"pattern": "window(5)", "kv_heads": 2},
}  # fmt: skip
PAIRS = [(position, "window") for position in POSITIONS] + [
    ("alibi", choice) for choice in CHOICES if choice != "window"
] + [(position, choice) for position in ("rotary", "transformer_xl", "relative")
     for choice in ("beside the first", "compressed", "compressed in a window")]  # fmt: skip


def build(position: str = "rotary", **attention: Any) -> LanguageModel:
    """Weights are large, so that everything matters."""
    torch.manual_seed(0)
    keys = {"layers": 3, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0, "position": POSITIONS[position]}
    model = config.parse_config(LanguageModelConfig, {**keys, "attention": attention}).build(30).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Within, new caches keep all of the past: the plain twin."""
    plain = Layer.empty_cache

    def switch() -> None:
        monkeypatch.setattr(Layer, "empty_cache", lambda self, position, length, like, bounded=True:
                            plain(self, position, length, like, False))  # fmt: skip

    yield switch
    monkeypatch.undo()


def prompts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 30, (n,), generator=g).tolist() for n in lengths]


def caches(state: DecoderState) -> list[KVCache]:
    return [part for layer in state.layers for part in layer]


def steps_of(model: LanguageModel, beams: int) -> list[torch.Tensor]:
    """Logits of rows with prompts of unequal lengths, whose beams branch, that move, end and are replaced."""
    g, outs = torch.Generator().manual_seed(1), []
    with torch.inference_mode():
        state = model.start(collate_texts(prompts([6, 1, 13, 3]), 0), 40)
        state.expand_beams(beams)
        for n in range(22):
            if n == 6:
                state.reorder(torch.tensor([2, 1, 0]))
            if n == 9:
                state.release([1])
            if n == 12:
                fresh = model.start(collate_texts(prompts([8], seed=5), 0), 1)
                fresh.expand_beams(beams)
                state.write(torch.tensor([1]), fresh)
            rows = len(state.position)
            out, state = model.step(torch.randint(4, 30, (rows, 1), generator=g), state)
            if 9 <= n < 12:  # what is done does not matter
                out = out.unflatten(0, (-1, beams))[[0, 2]].flatten(0, 1)
            outs.append(out)
            state.reorder_beams(torch.randint(0, beams, (rows // beams, beams), generator=g))
        out, state = model.step(torch.randint(4, 30, (rows, 5), generator=g), state)
    return [*outs, out]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("position, choice", PAIRS)
def test_steps_are_those_of_an_unbounded_cache(position: str, choice: str, beams: int, unbounded: Any) -> None:
    model = build(position, **CHOICES[choice])
    found = steps_of(model, beams)
    unbounded()
    for n, (out, expected) in enumerate(zip(found, steps_of(model, beams), strict=True)):
        torch.testing.assert_close(out, expected, atol=1e-11, rtol=1e-11, msg=f"step {n}")


class CapturedRunner(FixedStorageRunner):
    """As a CUDA graph: no step may ask the device for a number, or end with a tensor elsewhere."""

    def run_at_width(self, step: Steppable, width: int) -> None:
        with NoHostReads():
            super().run_at_width(step, width)


def generated(model: LanguageModel, search: DecodingConfig, runner: Any, slots: int) -> list[list[int]]:
    rows = prompts([13, 9, 6, 3, 2, 1], seed=3)  # the longest first, as queues have them
    requests = [GenerationRequest(20, n, prompt=tuple(row)) for n, row in enumerate(rows)]

    def blank(count: int, length: int) -> TextBatch:
        return collate_texts([[2] * length] * count, 0)

    queue = RequestQueue(lambda ids: collate_texts([rows[n] for n in ids], 0), requests, slots,
                         dummy_batch=blank if runner else None, source_lengths=[len(row) for row in rows])  # fmt: skip
    return [found[0].tokens for found in Engine(model, runner).decode(queue, SYMBOLS, search)]


@pytest.mark.parametrize("search", [Greedy(), Beam(size=3)], ids=["greedy", "beam"])
@pytest.mark.parametrize("choice", ["windows of several sizes, and full", "compressed in a window", "blocks"])
def test_continuous_batches_say_the_same(choice: str, search: DecodingConfig, unbounded: Any) -> None:
    """Refilled slots and fixed storage beside an unbounded cache, in which all begin together."""
    model = build("alibi", **CHOICES[choice])
    found = [generated(model, search, runner, slots) for runner, slots in ((None, 2), (CapturedRunner, 4))]
    unbounded()
    expected = generated(model, search, None, 6)
    assert found == [expected, expected]
    assert len(set(map(tuple, expected))) > 2


def elements(state: DecoderState) -> int:
    kept = [value for cache in caches(state) for value in vars(cache).values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() for tensor in kept)


def test_storage_stays_as_it_is_ten_windows_on() -> None:
    """170 tokens and windows of 4, 16 and 8 keys, with those that are compressed by 3 in the first."""
    model = build(pattern=["window(3)", "window(15)", "window(7)"], compress=[CONV, "none", "none"])
    with torch.inference_mode():
        state = model.start(collate_texts([[5, 6, 7], [8]], 0), 200)
        model.step(torch.tensor([[2], [2]]), state)
        before, kept = elements(state), [cache.keys.shape[2] for cache in caches(state)]
        for _ in range(170):
            model.step(torch.tensor([[9], [11]]), state)
    assert elements(state) == before == 2 * 2 * 16 * (3 + 3 + 16 + 8)  # rows, keys and values, size
    assert kept == [3, 16, 8]  # two groups and the one that is not complete; windows


def test_only_what_keeps_all_can_be_taken_back() -> None:
    model, batch = build(pattern="window(4)"), collate_texts(prompts([5, 3]), 0)
    assert not model.start(batch, 6).rolls_back
    assert model.start(batch, 6, bounded=False).rolls_back


def test_what_any_query_may_see_is_kept_whole() -> None:
    model = build(pattern=["full", "bigbird(block=4, random=1)", "random(1) | window(2)"])
    with torch.inference_mode():
        state = model.start(collate_texts([[5, 6, 7]], 0), 30)
    assert [type(cache) for cache in caches(state)] == [KVCache] * 3


@pytest.mark.parametrize("text, kept", [
    ("window(4)", Retention(0, 5)), ("window(4) | global(3)", Retention(3, 5)),
    ("window(9) & window(4)", Retention(0, 5)), ("full", None), ("window(4) | full", None),
    ("random(2)", None), ("random(2) & window(3)", Retention(0, 4)),
    ("bigbird(4, window=5, global=2, random=0)", Retention(8, 12)), ("bigbird", None),
])  # fmt: skip
def test_what_patterns_keep(text: str, kept: Retention | None) -> None:
    assert Pattern.from_text(text).retention == kept


@pytest.mark.parametrize("ring", [SlotRing(0, 5), SlotRing(3, 4), SlotRing(2, 1), SlotRing(0, 1), SlotRing(4, 9, 3)])
def test_slots_by_a_loop(ring: SlotRing) -> None:
    """Entries written one by one, against what each slot is said to hold."""
    slots = [-1] * ring.slots
    for entry in range(30):
        assert ring.entries(torch.tensor([entry - 1]))[0].tolist() == slots
        slots[int(ring.slot(torch.tensor(entry)))] = entry


def test_a_layer_alone_has_one() -> None:
    """In chunks of several sizes, which a window parts, as at once; only what it sees is kept."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 4, pattern="window(3)", position="rotary", causal=True).double().eval()
    x = torch.randn(2, 23, 16, dtype=torch.float64)
    cache = layer.new_cache(rows=2, length=23)
    assert isinstance(cache, BoundedKVCache)
    assert cache.keys.shape[2] == 4
    with torch.no_grad():
        out = torch.cat([layer(part, cache=cache) for part in x.split([5, 1, 1, 9, 1, 2, 4], 1)], 1)
        torch.testing.assert_close(out, layer(x), atol=1e-12, rtol=0)
