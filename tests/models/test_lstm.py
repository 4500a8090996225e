"""LSTM language models: torch's kernels against plain loops, what each direction can see, and step by step."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.models.batch import TextBatch, collate_blocks, collate_texts
from regard.models.lstm import BiLstmConfig, ConcatPooler, Lstm, LstmConfig, LstmLanguageModel, reverse_rows
from regard.models.recurrent import lstm

ENTRIES = 30


def build(kind: type[LstmConfig] = LstmConfig, **keys: float) -> LstmLanguageModel:
    """Weights are large, so that everything matters."""
    torch.manual_seed(0)
    off = {"dropout": 0.0, "word_dropout": 0.0, "weight_dropout": 0.0}
    sizes = {"layers": 3, "size": 8} | ({"hidden": 12} if kind is LstmConfig else {})
    model = kind(**{**sizes, **off, **keys}).build(ENTRIES).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


def ids(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(4, ENTRIES, (rows, length), generator=torch.Generator().manual_seed(seed))


def learned(rows: int = 2, length: int = 7) -> TextBatch:
    return collate_blocks(ids(rows, length + 1).numpy())


def by_hand(tower: torch.nn.Module, x: Tensor, residual: bool) -> Tensor:
    """One place of one layer after the other."""
    for n, layer in enumerate(tower.layers):
        own = layer.layers
        state = x.new_zeros(len(x), own.hidden_size), x.new_zeros(len(x), own.hidden_size)
        out = []
        for t in range(x.shape[1]):
            state = lstm(F.linear(x[:, t], own.weight_ih_l0, own.bias_ih_l0), state, own.weight_hh_l0, own.bias_hh_l0)
            out.append(state[0])
        read = torch.stack(out, 1)
        x = x + read if residual and n else read
    return x


def test_scores_are_those_of_plain_loops() -> None:
    model, batch = build(), learned()
    table = model.body.embedding.weight
    hidden = by_hand(model.body.ahead, table[batch.ids], residual=False)
    torch.testing.assert_close(model(batch), hidden.flatten(0, 1) @ table.T + model.output.bias)
    assert [layer.layers.hidden_size for layer in model.body.ahead.layers] == [12, 12, 8]


def test_both_directions_are_learned_with_one_table() -> None:
    model, batch = build(BiLstmConfig), learned()
    table, body = model.body.embedding.weight, model.body
    text = torch.cat([batch.ids, batch.labels.view(2, 7)[:, -1:]], 1)  # [B, 8]
    ahead = by_hand(body.ahead, table[text[:, :-1]], residual=True) @ table.T
    back = by_hand(body.back, table[text[:, 1:]].flip(1), residual=True).flip(1) @ table.T
    wanted = F.cross_entropy(ahead.flatten(0, 1), text[:, 1:].flatten(), reduction="sum")
    wanted = wanted + F.cross_entropy(back.flatten(0, 1), text[:, :-1].flatten(), reduction="sum")
    torch.testing.assert_close(model(batch, None, 0.0), wanted / 2)
    torch.testing.assert_close(model(batch), ahead.flatten(0, 1))  # what it is measured by


def test_no_direction_sees_what_it_is_to_say() -> None:
    """Of place 3: the forward half by places 0 to 3 alone, the backward half by 3 to the row's own end alone."""
    body = build(BiLstmConfig).body
    x = body.embed(ids(2, 6)).detach().requires_grad_()
    body.embed = lambda given: x  # type: ignore[method-assign]
    lengths = torch.tensor([6, 5])
    top = body.bidirectional(ids(2, 6), lengths)[-1]
    for half, seen in ((top[:, 3, :8], [1, 1, 1, 1, 0, 0]), (top[:, 3, 8:], [0, 0, 0, 1, 1, 1])):
        (given,) = torch.autograd.grad(half.sum(), x, retain_graph=True)
        found = (given.abs().sum(-1) > 0).long().tolist()
        assert found[0] == seen
        assert found[1] == [*seen[:5], 0]  # padding is not seen


def test_backwards_begins_at_each_rows_own_end() -> None:
    body, words = build(BiLstmConfig).body, ids(1, 4)
    alone = body(TextBatch(words))
    beside = torch.cat([words, torch.zeros(1, 3, dtype=torch.long)], 1)
    batch = TextBatch(torch.cat([beside, ids(1, 7)]), torch.tensor([[True] * 4 + [False] * 3, [True] * 7]))
    torch.testing.assert_close(body(batch)[:1, :4], alone)
    assert reverse_rows(torch.tensor([[1, 2, 3, 0]]), torch.tensor([3])).tolist() == [[3, 2, 1, 0]]


def test_states_go_on_where_a_batch_ended() -> None:
    model, whole = build(), collate_blocks(ids(2, 13).numpy())
    first, second = collate_blocks(ids(2, 13).numpy()[:, :7]), collate_blocks(ids(2, 13).numpy()[:, 6:])
    one, states = model(first, None, 0.0, {})
    two, _ = model(second, None, 0.0, states)
    torch.testing.assert_close(one + two, model(whole, None, 0.0))
    assert not any(state.requires_grad for state in states.values())


@pytest.mark.parametrize("kind", [LstmConfig, BiLstmConfig])
def test_step_by_step_is_the_same(kind: type[LstmConfig]) -> None:
    model, words = build(kind), ids(3, 9)
    parallel = model(collate_blocks(torch.cat([words, words[:, :1]], 1).numpy())).view(3, 9, ENTRIES)
    prompts = collate_texts(
        [words[0, :4].tolist(), words[1, :1].tolist(), words[2, :2].tolist()], 0
    )  # of different lengths
    state, found = model.start(prompts, 5), []
    assert state.position.tolist() == [3, 0, 1]
    for t in range(5):
        read = torch.stack([words[0, 3 + t], words[1, t], words[2, 1 + t]])[:, None]
        logits, state = model.step(read, state)
        found.append(logits[:, 0])
    said = torch.stack(found, 1)  # [3, 5, V]
    torch.testing.assert_close(said, torch.stack([parallel[0, 3:8], parallel[1, :5], parallel[2, 1:6]]))
    moved, _ = model.step(words[:, 8:][[2, 0]], _reordered(state, [2, 0]))
    assert moved.shape == (2, 1, ENTRIES)


def _reordered(state: object, rows: list[int]) -> object:
    state.reorder(torch.tensor(rows))  # type: ignore[attr-defined]
    return state


def test_a_row_is_its_last_greatest_and_mean_state() -> None:
    pooler = ConcatPooler(2).double()
    hidden = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [9.0, 9.0], [7.0, 7.0]]], dtype=torch.double)
    real = torch.tensor([[True, True, True, False]])  # the third is the mark that closes the row
    wanted = pooler.dense(torch.tensor([[3.0, -1.0, 3.0, -1.0, 2.0, -3.0]], dtype=torch.double)).tanh()
    torch.testing.assert_close(pooler(hidden, real), wanted)
    torch.testing.assert_close(pooler(hidden[:, :3]), wanted)


def test_dropouts_are_drawn_once_a_row_and_once_a_batch() -> None:
    model = build(dropout=0.5).train()
    kept = model.dropout(torch.ones(3, 5, 8, dtype=torch.double))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert all(torch.equal(a, b) for a, b in pairwise(kept.unbind(1)))
    assert len({tuple(row.tolist()) for row in kept[:, 0]}) > 1
    dropped = build(weight_dropout=0.5)
    batch = learned()
    plain = dropped(batch)
    torch.testing.assert_close(plain, build()(batch))  # a trained model drops nothing
    torch.manual_seed(1)
    assert not torch.allclose(dropped.train()(batch), plain)
    layer, x = dropped.body.ahead.layers[0], torch.randn(2, 4, 8, dtype=torch.double)
    torch.manual_seed(2)
    found, _ = layer(x, x.new_zeros(2, 1, 2, 12))
    torch.manual_seed(2)
    with torch.no_grad():
        layer.layers.weight_hh_l0.copy_(F.dropout(layer.layers.weight_hh_l0, 0.5))
    torch.testing.assert_close(found, layer.eval()(x, x.new_zeros(2, 1, 2, 12))[0])


def test_its_parts_are_its_layers_from_the_top() -> None:
    body = Lstm(LstmConfig(layers=2, size=4, hidden=6), ENTRIES)
    assert [[module.layers.hidden_size for module in part] for part in body.parts()] == [[4], [6]]
