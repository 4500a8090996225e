"""Structural positions: trees worked by hand, the paper's equations pair by pair, padding and cached decoding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard import config
from regard.data.annotations import tree_positions
from regard.errors import RegardError
from regard.models.batch import PairBatch
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout, Tree
from regard.nn.multi_head import build_attention
from regard.nn.pattern import Full
from regard.nn.position import Position, StructuralConfig, sinusoids
from regard.nn.position.structural import tree_distance
from regard.nn.sizes import Sizes

BUSH = [2, 0, 4, 2, 6, 2]  # Bush held a talk with Sharon
DEEP = [0, 1, 2, 3, 2, 1]  # a chain of four words, and two that branch off


def tree(rows: list[list[int]], words: list[list[int]] | None = None) -> Tree:
    """A place for each word, or for each piece by its word, and one for the end; padded on the right."""
    chosen = words or [list(range(len(heads))) for heads in rows]
    found = [tree_positions(heads)[:, [*pieces, -1]] for heads, pieces in zip(rows, chosen, strict=True)]
    full = np.zeros((3, len(rows), max(part.shape[1] for part in found)), dtype=np.int64)
    for n, part in enumerate(found):
        full[:, n, : part.shape[1]] = part
    return Tree(*torch.from_numpy(full))


def layout(made: Tree, real: torch.Tensor | None = None) -> Layout:
    return Layout.of(made.depth.shape[1], real, tree=made)


def table(made: Tree) -> np.ndarray:
    context = AttentionContext(layout(made), layout(made))
    b, _, i, j = context.grid()
    return tree_distance(context, b, i, j).view(len(made.depth), context.queries.length, -1).numpy()


def test_a_sentence_worked_by_hand() -> None:
    """From talk: Bush −2, held −1, a 1, with 3, Sharon 2. The end is one deeper than the deepest, on nobody's path."""
    assert tree([BUSH]).depth.tolist() == [[1, 0, 2, 1, 2, 1, 3]]
    assert table(tree([BUSH]))[0].tolist() == [
        [0, -1, 3, 2, 3, 2, 4],
        [1, 0, 2, 1, 2, 1, 3],
        [-3, -2, 0, -1, 4, 3, 5],
        [-2, -1, 1, 0, 3, 2, 4],
        [-3, -2, -4, -3, 0, -1, 5],
        [-2, -1, -3, -2, 1, 0, 4],
        [-4, -3, -5, -4, -5, -4, 0],
    ]


def test_one_path_may_be_long() -> None:
    """Two steps down a path are a distance of 2, not the sum of the depths; each row has its own tree."""
    second = table(tree([BUSH, DEEP]))[1]
    assert second[1].tolist() == [-1, 0, 1, 2, 1, 2, 5]
    assert second[4].tolist() == [-2, -1, -4, -5, 0, 3, 6]


def test_pieces_stand_where_their_word_does() -> None:
    """Among themselves they are 0 apart; others see them all alike, but for the sign that order gives."""
    found = table(tree([[2, 0, 2]], [[0, 0, 1, 2, 2]]))[0]
    assert found.tolist()[:2] == [[0, 0, -1, 2, 2, 3]] * 2
    assert found.tolist()[3:5] == [[-2, -2, -1, 0, 0, 3]] * 2


# --- the equations -----------------------------------------------------------------------------------------------


def chain(heads: list[int], word: int) -> list[int]:
    return [word] if heads[word] == 0 else [word, *chain(heads, heads[word] - 1)]


def relation(heads: list[int], i: int, j: int) -> int:
    """By walking up from both words; the end comes after the last word."""
    deepest = max(len(chain(heads, w)) - 1 for w in range(len(heads)))
    depth = [len(chain(heads, w)) - 1 for w in range(len(heads))] + [deepest + 1]
    words = i < len(heads) and j < len(heads)
    if i == j or (words and (i in chain(heads, j) or j in chain(heads, i))):
        return depth[j] - depth[i]
    return (depth[i] + depth[j]) * (1 if j > i else -1)


def worked(q, k, v, far, rows, sequential, structural):
    """z_i = Σ_j softmax_j(q_i (k_j + aᴷ_{j−i} + bᴷ_{t(i,j)}) / √d) (v_j + aⱽ_{j−i} + bⱽ_{t(i,j)}), O(n² d)."""
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(q.shape[:3]):
        scores, sums = [], []
        for j in range(k.shape[2]):
            s, t = (max(-far, min(far, n)) + far for n in (j - i, relation(rows[b], i, j)))
            scores.append(q[b, h, i] @ (k[b, h, j] + sequential[0][s] + structural[0][t]) / np.sqrt(q.shape[-1]))
            sums.append(v[b, h, j] + sequential[1][s] + structural[1][t])
        w = np.exp(np.array(scores) - max(scores))
        out[b, h, i] = (w / w.sum()) @ np.array(sums)
    return out


def both_tables(part: Position) -> tuple[np.ndarray, np.ndarray]:
    return part.keys.detach().numpy(), part.values.detach().numpy()


@pytest.mark.parametrize("far", [2, 16])
def test_relative_terms_by_the_equations(far: int) -> None:
    torch.manual_seed(0)
    sizes, rows = Sizes.of(8, 2, d_k=4, d_v=3), [BUSH, DEEP]
    position = StructuralConfig(terms="relative", distance=far).build(sizes).double()
    layer = build_attention(AttentionConfig(d_k=4, d_v=3), 8, 2, position, Full()).double()
    context = AttentionContext(layout(tree(rows)), layout(tree(rows)))
    q, k, v = (torch.randn(2, 2, 7, n, dtype=torch.float64) for n in (4, 4, 3))
    with torch.no_grad():
        out = layer.reference(AttentionInputs(layer, q, k, v, context, Full(), position.bias(q, context)))[0]
        assert torch.equal(layer.attend(q, k, v, context), out)
    tables = both_tables(position.sequential), both_tables(position.structural)
    np.testing.assert_allclose(out, worked(q.numpy(), k.numpy(), v.numpy(), far, rows, *tables), atol=1e-12)


def test_a_sparse_pattern_in_blocks() -> None:
    """The block kernel gathers keys; the tree must go along."""
    torch.manual_seed(0)
    position = StructuralConfig(distance=3).build(Sizes.of(8, 2)).double()
    layer = build_attention(AttentionConfig(pattern="window(2) | global(1)"), 8, 2, position, Full()).double()
    made = layout(tree([[0, *range(1, 240)], [n // 2 for n in range(1, 241)]]))  # a chain, and a tree that branches
    context = AttentionContext(made, made)
    q, k, v = (torch.randn(2, 2, 241, 4, dtype=torch.float64) for _ in range(3))
    with torch.no_grad():
        out = layer.attend(q, k, v, context)
        assert layer.path.startswith("blocks")
        bound = layer.pattern.bind(q, context, 0)
        expected = layer.reference(AttentionInputs(layer, q, k, v, context, bound, position.bias(q, context)))[0]
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


def test_absolute_term_by_the_equation() -> None:
    torch.manual_seed(0)
    position = StructuralConfig(terms="absolute").build(Sizes.of(8, 2)).double()
    flat, deep = (sinusoids(torch.tensor(n), 8).numpy() for n in (list(range(7)), [1, 0, 2, 1, 2, 1, 3]))
    x = torch.randn(1, 7, 8, dtype=torch.float64)
    with torch.no_grad():
        added = (position.embed(x, layout(tree([BUSH]))) - x)[0].numpy()
        np.testing.assert_allclose(added, np.tanh(flat + deep), atol=1e-12)  # as it begins
        weight = torch.randn(8, 16, dtype=torch.float64)
        position.join.project.weight.copy_(weight)
        added = (position.embed(x, layout(tree([BUSH]))) - x)[0].numpy()
    expected = [np.tanh(weight.numpy() @ np.concatenate([deep[n], flat[n]])) for n in range(7)]
    np.testing.assert_allclose(added, expected, atol=1e-12)


def test_both_are_both() -> None:
    sizes, made = Sizes.of(8, 2), layout(tree([BUSH]))
    both, relative, absolute = (StructuralConfig(terms=t).build(sizes) for t in ("both", "relative", "absolute"))
    relative.load_state_dict({n: p for n, p in both.state_dict().items() if not n.startswith("depth.")})
    q, x, context = torch.randn(1, 2, 7, 4), torch.randn(1, 7, 8), AttentionContext(made, made)
    assert torch.equal(both.bias(q, context).dense(context), relative.bias(q, context).dense(context))
    assert torch.equal(both.embed(x, made), absolute.embed(x, made))
    assert relative.embed(x, made) is x
    assert absolute.bias(q, context) is None


# --- in a model --------------------------------------------------------------------------------------------------


def build(terms: str, **keys: object) -> Transformer:
    torch.manual_seed(0)
    small = {"layers": 2, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0, "init": "xavier", **keys}
    position = {"encoder": {"kind": "structural", "terms": terms, "distance": 3}, "decoder": "sinusoidal"}
    return config.parse_config(TransformerConfig, {**small, "position": position}).build(30, 30).double().eval()


def batch(rows: list[list[int]], target: int = 4) -> PairBatch:
    made = tree(rows)
    g = torch.Generator().manual_seed(7)
    width = made.depth.shape[1]
    source = torch.stack([torch.randint(4, 30, (9,), generator=g)[:width] for _ in rows])
    lengths = torch.tensor([len(heads) + 1 for heads in rows])
    real = None if (lengths == width).all() else torch.arange(width) < lengths[:, None]
    said = torch.randint(4, 30, (len(rows), target), generator=g)
    return PairBatch(source, real, said, said.flatten(), torch.arange(said.numel()), tree=made)


def one(whole: PairBatch, row: int, heads: list[int]) -> PairBatch:
    length = len(heads) + 1
    return PairBatch(whole.source[row : row + 1, :length], None, whole.target[row : row + 1], tree=tree([heads]))


@pytest.mark.parametrize("terms", ["absolute", "relative", "both"])
@pytest.mark.parametrize("rows", [[BUSH, [0], DEEP], [DEEP, BUSH]], ids=["padded", "full"])
def test_alone_as_in_a_batch(terms: str, rows: list[list[int]]) -> None:
    """Also in a batch without padding, where only the trees say that rows differ."""
    model, whole = build(terms), batch(rows)
    with torch.no_grad():
        together = model.encode(whole)[0]
        for n, heads in enumerate(rows):
            alone = model.encode(one(whole, n, heads))[0][0]
            torch.testing.assert_close(together[n, : len(alone)], alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("terms", ["absolute", "relative", "both"])
def test_the_tree_matters(terms: str) -> None:
    model, whole = build(terms), batch([BUSH])
    with torch.no_grad():
        other = model.encode(replace(whole, tree=tree([DEEP])))[0]
        assert float((model.encode(whole)[0] - other).abs().max()) > 1e-3


@pytest.mark.parametrize("terms", ["absolute", "relative", "both"])
def test_stepwise_equals_parallel(terms: str) -> None:
    """The tree is the source's; rows that are moved while decoding take their source along."""
    model, whole = build(terms), batch([BUSH, [0], DEEP])
    assert whole.target is not None
    with torch.no_grad():
        parallel = model(whole).view(3, 4, -1)
        state = model.start(whole, 4)
        first, state = model.step(whole.target[:, :2], state)
        order = torch.tensor([2, 0, 1])
        state.reorder(order)
        second, state = model.step(whole.target[order, 2:], state)
    torch.testing.assert_close(first, parallel[:, :2], atol=1e-9, rtol=0)
    torch.testing.assert_close(second, parallel[order, 2:], atol=1e-9, rtol=0)


def test_gradients_reach_every_parameter() -> None:
    model = build("both").train()
    model(batch([BUSH, [0], DEEP])).square().sum().backward()
    for name, parameter in model.encoder_position.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.abs().sum() > 0), name
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("terms", ["absolute", "relative", "both"])
def test_without_a_tree(terms: str) -> None:
    with pytest.raises(RegardError, match="structural positions need a dependency tree for every sentence: give heads"):
        build(terms).encode(replace(batch([BUSH]), tree=None))


def test_refused_choices() -> None:
    with pytest.raises(ValueError, match="distance must be at least 1"):
        StructuralConfig(distance=0)
    with pytest.raises(ValueError, match="odd"):
        StructuralConfig().check(Sizes.of(7, 1))
    with pytest.raises(Exception, match="structural positions belong to the encoder, not the decoder"):
        config.parse_config(TransformerConfig, {"position": "structural"})
