"""Likelihoods in windows, against one token at a time; every token counts once, whatever the stride."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import config
from regard.examples.windows import StridedWindows
from regard.models.batch import TextBatch
from regard.models.lm import LanguageModelConfig
from regard.predict import generation as module
from regard.predict.generation import negative_log_likelihoods


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    keys = {
        "layers": 2,
        "size": 16,
        "inner": 24,
        "heads": 2,
        "init": "xavier",
        "position": {"kind": "learned", "length": 12},
    }
    made = config.parse_config(LanguageModelConfig, keys).build(20).double()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return made


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_every_token_is_scored_once_and_sees_enough(tokens: int, context: int, stride: int) -> None:
    reach = StridedWindows(max(context, stride), stride)
    scored = []
    for _, begin, end, skip in reach.windows(0, tokens):
        assert 0 <= begin < end <= tokens - 1
        assert end - begin <= reach.context
        for place in range(begin + skip, end):
            scored.append(place + 1)
            assert place + 1 - begin >= min(place + 1, reach.context - reach.stride + 1)
    assert scored == list(range(1, tokens))


@pytest.mark.parametrize("context, stride", [(12, 12), (12, 5), (8, 1), (5, 4)])
def test_against_one_token_at_a_time(context: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.LOGITS, "cpu", 20 * 30)  # several batches
    net, draw = model().eval(), np.random.default_rng(0)
    rows = [draw.integers(4, 20, n).tolist() for n in (31, 1, 2, 12, 13, 30)]
    rows[0][7] = rows[3][4] = 3  # never said: neither counts, but what follows sees it
    found = negative_log_likelihoods(net, rows, StridedWindows(context, stride), ignored=3)
    for row, (nll, count) in zip(rows, found, strict=True):
        expected = 0.0
        for place in range(1, len(row)):
            if row[place] == 3:
                continue
            # the windows end at context, context + stride, …, and at the end of the row
            end = context if place <= context else context + stride * math.ceil((place - context) / stride)
            end = min(end, len(row) - 1)
            read = torch.tensor([row[max(0, end - context) : place]])
            logits = net(TextBatch(read, label_positions=torch.tensor([read.shape[1] - 1])))
            expected -= torch.log_softmax(logits, -1)[0, row[place]].item()
        assert nll == pytest.approx(expected, rel=1e-9)
        assert count == sum(token != 3 for token in row[1:])


def test_the_model_comes_back_as_it_was() -> None:
    net = model().train()
    one, other = (negative_log_likelihoods(net, [[2, 5, 6, 7]], StridedWindows(4, 4)) for _ in range(2))
    assert one == other  # without dropout
    assert net.training


def test_a_stride_past_the_context_would_leave_tokens_out() -> None:
    with pytest.raises(ValueError, match="stride must be from 1 to the context of 8, not 9"):
        StridedWindows(8, 9)
