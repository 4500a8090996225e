"""Models whose decoder has a recurrence in the place of self-attention: stepwise equals parallel; refusals."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.accel.fused_step import FusedAverage, FusedSSRU, fused
from regard.decoding import Engine, RequestQueue, Speculative, Symbols
from regard.errors import RegardError
from regard.look.attention import look
from regard.models.batch import collate_texts
from regard.nn.record import AttentionRecorder
from tests.accel.test_fused_step import same_steps
from tests.interop.toy import make
from tests.models import promises
from tests.models.promises import batch
from tests.models.test_lm import build as build_lm
from tests.models.test_transformer import build

KINDS: dict[str, Any] = {"ssru": "ssru", "average": "average", "bare": {"kind": "average", "inner": 0}}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


@each_kind
@pytest.mark.parametrize("keys", [{}, {"position": "none", "residual": "pre_norm"}, {"decoder_layers": 1}])
def test_step_by_step_is_the_parallel_pass(kind: Any, keys: dict[str, Any]) -> None:
    model, lengths = build(decoder_self=kind, **keys), [(4, 6), (2, 3), (5, 1)]
    promises.stepwise_as_at_once(model, lengths, 0)
    promises.stepwise_as_at_once(model, lengths, 3)
    promises.alone_as_in_a_padded_batch(model, lengths)
    promises.rows_move(model)


@each_kind
def test_the_past_alone_is_seen_and_everything_learns(kind: Any) -> None:
    promises.no_place_sees_a_later_target(build(decoder_self=kind, share="none"))
    promises.gradients_reach_every_parameter(build(decoder_self=kind, share="none"))


@each_kind
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("beams", [1, 3])
def test_the_fused_step(kind: Any, beams: int, uneven: bool) -> None:
    model, given = build(decoder_self=kind), batch([(5, 4), (3, 4), (2, 4)])
    same_steps(model, lambda: model.start(given, 9), beams=beams, uneven=uneven)
    assert {type(layer.attentions[0]) for layer in fused(model).layers} <= {FusedSSRU, FusedAverage}


@each_kind
def test_a_language_model(kind: Any) -> None:
    """Prompts of several lengths, one of a single token, go on where each ends."""
    model, rows = build_lm(decoder_self=kind), [[5, 6, 7, 8], [9, 4], [3], [3, 5, 6]]
    given = collate_texts(rows, 0)
    same_steps(model, lambda: model.start(given, 9))
    more = torch.tensor([[4, 9], [8, 7], [6, 5], [5, 4]])
    with torch.no_grad():
        state = model.start(given, 5)
        outs = [model.step(given.first_tokens(2), state)[0]]
        outs += [model.step(tokens, state)[0] for tokens in more.split(1, 1)]
        for n, row in enumerate(rows):
            whole = model(collate_texts([[*row, *more[n].tolist()]], 0))[0, len(row) - 1 :]
            torch.testing.assert_close(torch.cat(outs, 1)[n], whole, atol=1e-9, rtol=0)


def test_it_goes_back_only_where_it_still_knows_the_way() -> None:
    model = build_lm(decoder_self="ssru")
    state = model.start(collate_texts([[5, 6, 7, 8]], 0), 5)
    with torch.no_grad():
        for token in (8, 4, 9):
            model.step(torch.tensor([[token]]), state)
    with pytest.raises(RegardError, match="a recurrent state keeps no past"):
        state.layers[0][0].rewind(torch.tensor([4]))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"position": "rotary"}, "rotary positions to act in; give the decoder none, sinusoidal or learned"),
        ({"attention": {"decoder": {"pattern": "window(4)"}}}, "no attention for attention.decoder.pattern"),
        ({"attention": {"score": "cosine"}}, "write it for attention.encoder and attention.cross alone"),
        ({"attention": {"decoder": {"kv_heads": 2}}}, "no attention for attention.decoder.kv_heads"),
        ({"decoder_self": "ssrv"}, "did you mean ssru"),
        ({"decoder_self": {"kind": "average", "inner": -1}}, "inner must be at least 0, not -1"),
    ],
)
def test_what_makes_no_sense_is_refused(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(RegardError, match=why):
        build(**{"decoder_self": "ssru", **keys})


def test_what_a_language_model_refuses() -> None:
    with pytest.raises(RegardError, match=r"no attention for attention\.normalise to change; leave it out"):
        build_lm(decoder_self="ssru", attention={"normalise": "sparsemax"})
    with pytest.raises(RegardError, match="memory needs decoder_self: attention, not ssru"):
        build_lm(decoder_self="ssru", memory=4, position="none")


def test_it_has_no_weights_to_record() -> None:
    model, given = build(decoder_self="average"), batch([(4, 3)])
    record = AttentionRecorder()
    model(given, record)
    assert sorted({role for role, _ in record.records}) == ["cross", "encoder"]
    for ask in (lambda r: model(given, r), lambda r: model.start(given, 5, r)):
        with pytest.raises(RegardError, match="has AverageAttention in the place of self-attention, which"):
            ask(AttentionRecorder(("decoder",)))


def test_look_says_that_it_has_none(tmp_path: Path) -> None:
    result = look(make(tmp_path / "run", decoder_self="ssru"), "the cat")
    assert [place["name"] for place in result["places"]] == ["encoder", "cross"]
    assert result["model"]["title"].endswith("SSRU in the place of decoder self-attention, without weights")
    assert result["rollout"] == {}  # which parts of a word it mixes, nobody knows


def test_it_is_not_guessed_ahead_and_no_draft() -> None:
    """What was read would have to be taken back."""
    recurrent, attends = build(decoder_self="ssru"), build()
    queue = RequestQueue.of(batch([(5, 4), (3, 4)]), [7] * 2)
    for model, config, draft in (
        (recurrent, Speculative(), None),
        (recurrent, Speculative(draft="layers(1)"), None),
        (attends, Speculative(draft="other"), recurrent),
    ):
        with pytest.raises(RegardError, match="recurrent decoder, which cannot; write search greedy"):
            Engine(model, load_draft=lambda run, draft=draft: draft).decode(queue, Symbols(2, 3, (0, 2)), config)
    assert not recurrent.config.rolls_back
