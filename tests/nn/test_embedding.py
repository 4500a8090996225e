"""Words that are dropped are dropped everywhere, and what is left makes up for them."""

import numpy as np
import torch

from regard import config
from regard.models.batch import collate_blocks
from regard.models.lm import LanguageModelConfig
from regard.nn.embedding import WordDropout


def test_a_word_is_dropped_wherever_it_stands() -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (20, 30))
    drop, x = WordDropout(0.4), torch.ones(20, 30, 3)
    found = drop(x, ids, 50)
    for word in range(50):
        kept = found[:, 1:][ids[:, 1:] == word]
        assert (kept == 0).all() or torch.allclose(kept, torch.tensor(1 / 0.6))
    share = torch.stack([drop(x, ids, 50)[0, 1, 0] == 0 for _ in range(2000)]).float().mean()
    assert abs(share - 0.4) < 0.05
    assert torch.equal(drop.eval()(x, ids, 50), x)


def test_what_begins_a_text_stays() -> None:
    torch.manual_seed(0)
    ids, x = torch.randint(0, 50, (20, 6)), torch.ones(20, 6, 3)
    document = torch.tensor([0, 0, 0, 1, 1, 2]).expand(20, 6)
    found = torch.stack([WordDropout(0.4)(x, ids, 50, document) for _ in range(20)])
    assert (found[:, :, [0, 3, 5]] == 1).all()
    assert (found[:, :, [1, 2, 4]] != 1).all()


def test_gradients_stay_numbers_where_the_first_words_are_dropped() -> None:
    keys = {"layers": 40, "size": 64, "inner": 256, "heads": 2, "dropout": 0.0, "word_dropout": 0.9, "init": "normal"}
    torch.manual_seed(0)
    model = config.parse_config(LanguageModelConfig, {**keys, "position": "rotary"}).build(30)
    model(collate_blocks(np.arange(5, 30)[None]), None, 0.0).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_dropout_of_the_embeddings_is_its_own_where_it_is_given() -> None:
    keys = {"layers": 1, "size": 8, "inner": 8, "heads": 2, "dropout": 0.3}
    assert config.parse_config(LanguageModelConfig, keys).build(9).dropout.p == 0.3
    assert config.parse_config(LanguageModelConfig, {**keys, "embedding_dropout": 0.0}).build(9).dropout.p == 0.0
