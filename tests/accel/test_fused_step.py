"""The fused step gives what a model's own step gives, for every choice of attention."""

from typing import Any

import pytest
import torch

from regard.accel.fused_step import FusedCrossAttention, FusedSelfAttention, fused
from regard.models import transformer
from regard.models.batch import collate_texts
from regard.nn.record import AttentionRecorder
from tests.models.test_lm import build as build_lm
from tests.models.test_transformer import batch, build

FAST: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "dot": {"attention": {"score": "dot"}},
    "general": {"attention": {"score": "general"}},
    "shared": {"attention": {"projection": "shared"}},
    "other sizes": {"attention": {"d_k": 3, "d_v": 5}},
    "heads of its own": {"attention": {"cross": {"heads": 8}, "decoder": {"heads": 1}}},
    "grouped keys": {"attention": {"heads": 4, "kv_heads": 2}},
    "one head of keys": {"attention": {"heads": 4, "kv_heads": 1, "d_v": 3}, "position": {"kind": "rotary"}},
    "rotary": {"position": {"kind": "rotary"}},
    "learned": {"position": {"kind": "learned", "length": 30}},
    "learned in every layer": {"position": {"kind": "learned_per_layer", "length": 30, "join": "concat"}},
    "beside the word": {"position": {"kind": "sinusoidal", "join": "concat"}},
    "pre-norm": {"residual": "pre_norm"},
    "no residual": {"residual": "none"},
    "batch norm": {"norm": "batch"},
    "no norm": {"norm": "none"},
    "RMSNorm": {"norm": "rms", "residual": "pre_norm"},
    "RMSNorm without gain": {"norm": "rms", "norm_gain": False},
    "LayerNorm without bias": {"norm_bias": False},
    "LayerNorm without gain and bias": {"norm_gain": False, "norm_bias": False, "residual": "pre_norm"},
    "attention alone": {"feed_forward": "none"},
    "gelu": {"activation": "gelu"},
    "gated": {"activation": "swiglu"},
    "bias": {"output_bias": True},
}
PLAIN: dict[str, dict[str, Any]] = {
    "additive": {"attention": {"score": "additive"}},
    "cosine": {"attention": {"score": "cosine"}},
    "a hard region": {"attention": {"normalise": {"kind": "hard", "width": 3}}},
    "sparsemax": {"attention": {"normalise": "sparsemax"}},
    "relative": {"position": {"kind": "relative", "distance": 3}},
    "alibi": {"position": {"kind": "alibi"}},
    "window": {"attention": {"decoder": {"pattern": "window(2)"}, "cross": {"pattern": "local_m(1)"}}},
    "compressed": {"attention": {"decoder": {"compress": "strided_conv"}, "cross": {"compress": "strided_conv"}}},
    "queries and keys normalised": {"attention": {"qk_norm": True}, "position": {"kind": "rotary"}},
    "one of two": {"attention": {"score": ["scaled_dot", "additive"]}},
}


def same_steps(model: Any, start: Any, steps: int = 6, beams: int = 1, uneven: bool = False) -> None:
    """Both read the same words; beams branch alike; rows begin at one place, or at several."""
    fast = fused(model)
    g = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        states = [start(), start()]
        for state in states:
            state.expand_beams(beams)
        for n in range(steps):
            if uneven and n == 2:  # the first sentence gives way to a new one
                for state in states:
                    fresh = start()
                    fresh.expand_beams(beams)
                    fresh.reorder(torch.tensor([1]))
                    state.release([0])
                    state.write(torch.tensor([0]), fresh)
            rows = len(states[0].position)
            words = torch.randint(4, 16, (rows, 1), generator=g)
            (expected, states[0]), (found, states[1]) = model.step(words, states[0]), fast.step(words, states[1])
            torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
            assert torch.equal(states[0].position, states[1].position)
            branch = torch.randint(0, beams, (rows // beams, beams), generator=g)
            for state in states:
                state.reorder_beams(branch)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", [*FAST, *PLAIN])
def test_steps_of_a_transformer(name: str, beams: int, uneven: bool) -> None:
    model = build(**(FAST | PLAIN)[name])
    given = batch([(5, 4), (3, 4), (2, 4)])
    same_steps(model, lambda: model.start(given, 9), beams=beams, uneven=uneven)


@pytest.mark.parametrize("name", [*FAST, *PLAIN])
def test_several_tokens_at_a_step(name: str) -> None:
    """Rows go back to several places, and go on from there; what was read beyond them does not show."""
    model = build(**(FAST | PLAIN)[name])
    given, fast = batch([(5, 4), (3, 4), (2, 4)]), fused(model)
    g = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        states, plain = [model.start(given, 14), model.start(given, 14)], model.start(given, 14)
        rows: list[list[int]] = [[], [], []]
        for _ in range(4):
            words = torch.randint(4, 16, (3, 3), generator=g)
            (expected, _), (found, _) = (m.step(words, state) for m, state in zip((model, fast), states, strict=True))
            torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
            kept = torch.randint(1, 4, (3,), generator=g)
            for row, tokens, count in zip(rows, words.tolist(), kept.tolist(), strict=True):
                row.extend(tokens[:count])
            for state in states:
                state.cache_positions.rollback(state.position - 3 + kept, 3)
                assert state.cache_positions.least <= int(state.position.min())
                assert state.cache_positions.filled >= int(state.position.max())
        shortest = min(map(len, rows))
        for n in range(shortest):
            _, plain = model.step(torch.tensor([row[n : n + 1] for row in rows]), plain)
        full = [row for row in range(3) if len(rows[row]) == shortest]
        again, _ = fast.step(torch.tensor([[7]] * 3), states[1])
        after, _ = model.step(torch.tensor([[7]] * 3), plain)
        torch.testing.assert_close(again[full], after[full], atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", [*FAST, *PLAIN, "past alone"])
def test_sources_are_read_as_the_model_reads_them(name: str) -> None:
    """With padding and without; an encoder that hides the future reads in its own way."""
    model = build(**(FAST | PLAIN | {"past alone": {"attention": {"encoder": {"pattern": "causal"}}}})[name])
    for given in (batch([(5, 4), (3, 4), (2, 4)]), batch([(4, 4), (4, 4)])):
        with torch.inference_mode():
            expected, found = (start(given, 9) for start in (model.start, fused(model).start))
        for (_, kept), (_, same) in zip(expected.layers, found.layers, strict=True):
            torch.testing.assert_close(same.keys, kept.keys, atol=1e-9, rtol=0)
            torch.testing.assert_close(same.values, kept.values, atol=1e-9, rtol=0)


def test_what_is_known_is_fused() -> None:
    for choices in FAST.values():
        assert fused(build(**choices)).start.keywords["encode"].layers
        for layer in fused(build(**choices)).layers:
            assert [type(each) for each in layer.attentions] == [FusedSelfAttention, FusedCrossAttention]
    for choices in PLAIN.values():
        attentions = [each for layer in fused(build(**choices)).layers for each in layer.attentions]
        assert not all(isinstance(each, FusedSelfAttention | FusedCrossAttention) for each in attentions)


def test_weights_that_are_recorded_are_recorded() -> None:
    model = build()
    record = AttentionRecorder()
    with torch.inference_mode():
        state = model.start(batch([(5, 4), (3, 4)]), 9, record)
        record.mark_prefill()
        fused(model).step(torch.tensor([[2], [2]]), state)
    assert len(record.at("cross", 0).weights) == 1


@pytest.mark.parametrize("beams", [1, 3])
def test_steps_of_a_language_model(beams: int) -> None:
    """Prompts of several lengths: rows begin at several places, and the longer ones' keys stay hidden."""
    model = build_lm()
    given = collate_texts([[5, 6, 7, 8], [9, 4], [3, 5, 6]], 0)
    same_steps(model, lambda: model.start(given, 9), beams=beams)


@pytest.mark.parametrize("keys", [{}, PLAIN["window"], PLAIN["compressed"]], ids=["full", "window", "compressed"])
def test_sources_that_are_read_in_parts(keys: dict[str, Any], monkeypatch) -> None:
    """Three parts, each as long as its own longest, give the steps of one batch."""
    model, given = build(**keys), batch([(9, 4), (8, 4), (5, 4), (4, 4), (4, 4), (1, 4)])
    words = torch.randint(4, 16, (6, 3), generator=torch.Generator().manual_seed(0))
    assert [len(part.source) for part in given.split_sources(20)] == [2, 3, 1]
    found = []
    for places in (20, None):
        monkeypatch.setattr(transformer, "ENCODE_TOKENS", {"cpu": places})
        with torch.inference_mode():
            found.append(model.step(words, model.start(given, 5))[0])
    torch.testing.assert_close(*found, atol=1e-9, rtol=0)


@pytest.mark.parametrize("index", [[0, 3, 2], [2, 1], [3, 3, 0, 1], [0, 1, 2, 3, 0]])
def test_rows_that_move_are_those_of_a_plain_choice(index: list[int]) -> None:
    """Some stay where they are, some go, and storage that was given up serves again."""
    model, words = build(), torch.tensor([[4], [5], [6], [7]])
    with torch.inference_mode():
        state = model.start(batch([(5, 4), (3, 4), (2, 4), (4, 4)]), 9)
        for _ in range(3):
            _, state = model.step(words, state)
        for chosen in (index, [1], [0, 0, 0]):
            kept = [x for layer in state.layers for part in layer for x in (part.keys, part.values)]
            expected = [x[chosen] for x in kept]
            state.reorder(torch.tensor(chosen))
            found = [x for layer in state.layers for part in layer for x in (part.keys, part.values)]
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
