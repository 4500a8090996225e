"""Words that are dropped are dropped everywhere, and what is left makes up for them."""

import torch

from regard import config
from regard.models.lm import LanguageModelConfig
from regard.nn.embedding import WordDropout


def test_a_word_is_dropped_wherever_it_stands() -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (20, 30))
    drop, x = WordDropout(0.4), torch.ones(20, 30, 3)
    found = drop(x, ids, 50)
    for word in range(50):
        kept = found[ids == word]
        assert (kept == 0).all() or torch.allclose(kept, torch.tensor(1 / 0.6))
    share = torch.stack([drop(x, ids, 50)[0, 0, 0] == 0 for _ in range(2000)]).float().mean()
    assert abs(share - 0.4) < 0.05
    assert torch.equal(drop.eval()(x, ids, 50), x)


def test_dropout_of_the_embeddings_is_its_own_where_it_is_given() -> None:
    keys = {"layers": 1, "size": 8, "inner": 8, "heads": 2, "dropout": 0.3}
    assert config.parse(LanguageModelConfig, keys).build(9).dropout.p == 0.3
    assert config.parse(LanguageModelConfig, {**keys, "embedding_dropout": 0.0}).build(9).dropout.p == 0.0
