"""Models that decide together: one alone is itself, several follow the mean of their log-probabilities."""

import pytest
import torch

from regard.accel.decoding_graph import Fixed
from regard.decoding import Beam, Engine, Greedy
from regard.decoding.ensemble import Ensemble
from regard.errors import RegardError
from regard.nn.record import AttentionRecorder
from tests.decoding.small import ENTRIES, MODELS, SYMBOLS, batch, feed, sentences
from tests.models import test_rnn, test_transformer


@pytest.mark.parametrize("config", [Greedy(), Beam(size=3)], ids=str)
def test_one_model_twice_is_that_model(config) -> None:
    model, rows = MODELS["transformer"](), sentences(9)
    alone = Engine(model).decode(feed(rows, 4), SYMBOLS, config)
    both = Engine(Ensemble([model, model])).decode(feed(rows, 4), SYMBOLS, config)
    assert [h[0].tokens for h in both] == [h[0].tokens for h in alone]
    assert [h[0].score for h in both] == pytest.approx([h[0].score for h in alone], abs=1e-9)


@pytest.mark.parametrize("compiled", [None, Fixed])
def test_greedy_by_hand(compiled) -> None:
    """Two kinds of models: at every step the word with the best mean of log-probabilities."""
    models = [test_transformer.build(ENTRIES), test_rnn.build(ENTRIES)]
    rows = sentences(5)
    found = Engine(Ensemble(models), compiled).decode(feed(rows, 3), SYMBOLS, Greedy())
    different = 0
    for row, (h,) in zip(rows, found, strict=True):
        words: list[int] = []
        for _ in range(2 * len(row) + 5):
            with torch.no_grad():
                each = [
                    m.step(torch.tensor([[2, *words]]), m.start(batch([row]), 60))[0][0, -1].log_softmax(-1)
                    for m in models
                ]
            mean = (each[0] + each[1]) / 2
            mean[[0, 2]] = -torch.inf
            different += int(mean.argmax()) != int(each[0].index_fill(0, torch.tensor([0, 2]), -torch.inf).argmax())
            if int(mean.argmax()) == 3:
                break
            words.append(int(mean.argmax()))
        assert h.tokens == words
    assert different > 3  # the second model has a say


def test_what_cannot_be_done() -> None:
    small, large = test_transformer.build(ENTRIES), test_transformer.build(ENTRIES + 1)
    rows = sentences(2)
    with pytest.raises(RegardError, match="vocabularies of 40 and 41"):
        Engine(Ensemble([small, large])).decode(feed(rows, 2), SYMBOLS, Greedy())
    with pytest.raises(RegardError, match="recorded"):
        Engine(Ensemble([small])).decode(feed(rows, 2), SYMBOLS, Greedy(), 1, AttentionRecorder())
    with pytest.raises(RegardError, match="at least one"):
        Ensemble([])
    learned = test_transformer.build(ENTRIES, position={"kind": "learned", "length": 48})
    assert Ensemble([small, learned]).longest == 48
    assert Ensemble([small]).longest is None
