"""ELMo: the mix by hand, and features that stay as they are."""

import math

import torch

from regard.models.batch import TextBatch
from regard.models.elmo import ElmoConfig, ScalarMix
from regard.models.heads import TokenClassifier
from regard.models.lstm import BiLstmConfig
from regard.training.optimiser import decay_groups


def test_the_mix_by_hand() -> None:
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, math.log(2.0), math.log(5.0)]))
        mix.gamma.fill_(0.5)
    layers = [torch.full((1, 2), value) for value in (8.0, 16.0, 32.0)]
    torch.testing.assert_close(mix(layers), torch.full((1, 2), 0.5 * (8.0 + 2 * 16.0 + 5 * 32.0) / 8))


def test_features_are_frozen_and_drop_nothing() -> None:
    torch.manual_seed(0)
    config = ElmoConfig(embedding=4, size=8, dropout=0.0, features=BiLstmConfig(size=6, dropout=0.5))
    model = TokenClassifier(config.build(20), 3).train()
    batch = TextBatch(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([[True] * 3, [True, True, False]]))
    model.scores(batch).sum().backward()
    named = dict(model.named_parameters())
    frozen = {name for name, p in named.items() if p.grad is None}
    assert frozen == {name for name in named if name.startswith("body.features.")} != set()
    assert not {id(p) for group in decay_groups(model, 0.1) for p in group["params"]} & {
        id(named[name]) for name in frozen
    }
    assert not model.body.features.training
    x = model.body.features.bidirectional(batch.ids, batch.lengths())
    assert [tuple(layer.shape) for layer in x] == [(2, 3, 12)] * 3
    words = model.body.features.embedding(batch.ids)
    assert torch.equal(x[0], torch.cat([words, words], -1))  # layer 0 is the words


def test_without_features_it_reads_its_own_words() -> None:
    assert not any("features" in name for name, _ in ElmoConfig(features=None).build(20).named_parameters())
