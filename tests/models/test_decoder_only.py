"""The decoder alone on pairs: a loop in numpy as oracle, stepwise equals parallel, the source's loss, linear cost."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard import config
from regard.config import parse_config, to_node
from regard.decoding import Beam, Engine, GenerationRequest, Greedy, RequestQueue, Symbols
from regard.errors import RegardError
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.models.decoders.pairs import DecoderOnly, DecoderOnlyConfig, join_pairs, source_lengths
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.pattern import PATTERNS, Causal, parse_pattern
from regard.nn.record import AttentionRecorder
from tests.models import promises
from tests.models.promises import MARKS, batch, sentences
from tests.searches import beam_search, greedy_search

T_DMCA = {"pattern": ["blocks(4)", "full"], "compress": ["none", "strided_conv"]}
PAPER = {"layers": 5, "residual": "post_norm", "activation": "relu", "init": "xavier", "attention": T_DMCA}
CHOICES = [
    PAPER,
    {"layers": 2},
    {"layers": 2, "position": "rotary", "output": "own", "norm": "batch"},
    {"layers": 2, "position": "alibi", "attention": {"pattern": "window(3) | global(1)"}},
]
each_choice = pytest.mark.parametrize("keys", CHOICES, ids=["paper", "plain", "batch norm", "window"])
LENGTHS = [(9, 4), (13, 7), (2, 3), (4, 12)]


def build(**keys: object) -> DecoderOnly:
    """Weights are large, so that everything matters."""
    torch.manual_seed(0)
    small = {"size": 8, "inner": 12, "heads": 2, "dropout": 0.0, **keys}
    model = config.parse_config(DecoderOnlyConfig, small).build(30, 30).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


# --- the same in numpy, one position at a time ---------------------------------------------------------------------


def norm(x: np.ndarray, d: dict[str, np.ndarray], name: str) -> np.ndarray:
    mean, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(spread + 1e-5) * d[f"{name}.weight"] + d[f"{name}.bias"]


def attention(x: np.ndarray, d: dict[str, np.ndarray], name: str, compressed: bool) -> np.ndarray:
    """Of blocks of 4; or, compressed, over every third position's mixture of the three up to it (Liu 2018, 4.2.3)."""
    n, size, heads, d_k = len(x), 8, 2, 4
    q, kv = (x @ d[f"{name}.{part}.weight"].T + d[f"{name}.{part}.bias"] for part in ("query", "key_value"))
    out = np.zeros((n, size))
    for h in range(heads):
        part = slice(h * d_k, (h + 1) * d_k)
        keys, values = kv[:, part], kv[:, size + h * d_k : size + (h + 1) * d_k]
        stands = list(range(n))  # the last position that a key covers
        if compressed:
            stands = list(range(2, n, 3))
            short = []
            for side, rows in (("key", keys), ("value", values)):
                kernel, bias = d[f"{name}.compress.{side}"][h], d[f"{name}.compress.{side}_bias"][h, 0]
                mixed = [sum(rows[end - 2 + r] @ kernel[r * d_k : (r + 1) * d_k] for r in range(3)) for end in stands]
                short.append(np.array([each + bias for each in mixed]).reshape(-1, d_k))
            keys, values = short
        for i in range(n):
            seen = [c for c, j in enumerate(stands) if j <= i and (compressed or j // 4 == i // 4)]
            if not seen:
                continue
            scores = np.array([q[i, part] @ keys[c] for c in seen]) / np.sqrt(d_k)
            weights = np.exp(scores - scores.max())
            out[i, part] = weights / weights.sum() @ values[seen]
    return out @ d[f"{name}.output.weight"].T + d[f"{name}.output.bias"]


def numpy_logits(model: DecoderOnly, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Those of the target and its end [T + 1, V]: L M L M L over source </s> <s> target."""
    d = {name.removeprefix("body."): p.detach().numpy() for name, p in model.named_parameters()}
    ids = np.concatenate([source, [MARKS.eos, MARKS.bos], target])
    place = np.arange(len(ids))[:, None] / 10000 ** (np.arange(0, 8, 2) / 8)
    x = d["embedding.weight"][ids] * np.sqrt(8)
    x[:, 0::2] += np.sin(place)
    x[:, 1::2] += np.cos(place)
    for n in range(5):
        name = f"layers.{n}"
        x = norm(x + attention(x, d, f"{name}.attention", n % 2 == 1), d, f"{name}.residuals.0.norm")
        inner = np.maximum(0, x @ d[f"{name}.feed_forward.expand.weight"].T + d[f"{name}.feed_forward.expand.bias"])
        inner = inner @ d[f"{name}.feed_forward.contract.weight"].T + d[f"{name}.feed_forward.contract.bias"]
        x = norm(x + inner, d, f"{name}.residuals.1.norm")
    return (x @ d["embedding.weight"].T)[len(source) + 1 :]


def test_the_whole_stack_by_hand() -> None:
    model = build(**PAPER)
    logits = model(batch(LENGTHS, seed=4)).split([t + 1 for _, t in LENGTHS])
    for (source, target), found in zip(sentences(LENGTHS, 4), logits, strict=True):
        torch.testing.assert_close(found.detach().numpy(), numpy_logits(model, source, target))


# --- one sequence --------------------------------------------------------------------------------------------------


def test_targets_stand_right_behind_their_sources() -> None:
    b = collate_pairs(RaggedRows.of([[5, 6, 7], [8]]), RaggedRows.of([[9], [10, 11]]), MARKS, MARKS)
    joined = join_pairs(b, source_lengths(b))
    assert source_lengths(b).tolist() == [4, 2]
    assert joined.ids.tolist()[0][:6] == [5, 6, 7, 3, 2, 9]
    assert joined.ids.tolist()[1][:5] == [8, 3, 2, 10, 11]
    assert joined.real.sum(1).tolist() == [6, 5]  # type: ignore[union-attr]


@each_choice
def test_promises(keys: dict) -> None:
    model = build(**keys)
    promises.stepwise_as_at_once(model, LENGTHS, prompt=1)
    promises.stepwise_as_at_once(model, LENGTHS, prompt=4)
    promises.rows_move(model)
    if keys.get("norm") != "batch":
        promises.alone_as_in_a_padded_batch(model, LENGTHS)


@each_choice
def test_slots_that_are_filled_again_and_fused_steps_change_nothing(keys: dict) -> None:
    model, b, symbols = build(**keys), batch(LENGTHS), Symbols(2, 3, (0, 2))
    whole = beam_search(model, PairBatch(b.source, b.source_real), [9] * 4, symbols, Beam(size=4))
    for fuse in (True, False):
        queue = RequestQueue(
            lambda chosen: PairBatch(b.source[chosen], b.source_real[chosen]),  # type: ignore[index]
            [GenerationRequest(9, n) for n in range(4)],
            slots=2,
        )
        found = Engine(model, fuse=fuse).decode(queue, symbols, Beam(size=4))
        assert [best[0].tokens for best in found] == [best[0].tokens for best in whole]


def test_greedy_search_takes_the_likeliest_of_the_parallel_pass() -> None:
    model, b = build(**PAPER), batch(LENGTHS)
    found = greedy_search(model, PairBatch(b.source, b.source_real), [8] * 4, Symbols(2, 3, (0, 2)), Greedy())
    rows = [row[:length].tolist() for row, length in zip(b.source, source_lengths(b) - 1, strict=True)]
    for row, best in zip(rows, found, strict=True):
        pair = collate_pairs(RaggedRows.of([row]), RaggedRows.of([best.tokens]), MARKS, MARKS)
        scores = model(pair).detach()
        scores[:, [0, 2]] = -torch.inf
        assert best.tokens == scores.argmax(-1).tolist()[: len(best.tokens)]
    assert sum(len(best.tokens) for best in found) > 8


# --- the loss on the source ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [LENGTHS, [(5, 3), (5, 6)]], ids=["padded", "equal"])
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_sources_loss_is_learned_and_not_shown(weight: float, lengths: promises.Lengths) -> None:
    model, b, smoothing = build(layers=2, source_weight=weight).train(), batch(lengths), 0.1
    measure = lambda scores, labels: F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing)  # noqa: E731
    target = measure(model(b), b.labels)
    total = target
    for row, length in zip(range(len(b.source)), source_lengths(b).tolist(), strict=True):
        x = model.body.hidden(join_pairs(b, source_lengths(b)))[row, : length - 1]
        total = total + weight * measure(model.body.output(x), b.source[row, 1:length])
    wanted = torch.autograd.grad(total, list(model.parameters()))
    loss = model(b, None, smoothing)
    loss.backward()
    torch.testing.assert_close(loss, target)
    for p, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(p.grad, gradient)
    assert model.eval()(b, None, smoothing).item() == pytest.approx(target.item())


# --- cost ----------------------------------------------------------------------------------------------------------


def test_local_blocks_cost_in_proportion_to_the_length() -> None:
    """What a block of queries looks up does not grow, and the backend for sparse patterns takes it."""
    pattern = (parse_pattern("blocks(256)", PATTERNS) & Causal()).bind(torch.zeros(1, 1, 1, 4), SimpleNamespace(), 0)  # type: ignore[arg-type]
    listed = []
    for n in (1024, 4096):
        context = AttentionContext(Layout.of(n), Layout.of(n))
        listed.append(pattern.blocks(context, 128).keys.shape)  # type: ignore[union-attr]
    assert [shape[2] for shape in listed] == [8, 32]
    assert listed[0][3] == listed[1][3] <= 3
    layer = MultiHeadAttention(8, 2, pattern="blocks(32)", causal=True)
    layer(torch.zeros(1, 256, 8))
    assert layer.path == "blocks"


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"position": "learned"}, "position: learned ends after 512 tokens"),
        ({"memory": 4, "position": "rotary"}, "memory belongs to the model lm"),
        ({"targets": 2}, "targets belongs to the model lm"),
        ({"source_weight": -1}, "source_weight must be at least 0"),
        ({"preset": "char12"}, "preset"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        parse_config(DecoderOnlyConfig, to_node(keys, "model"))


def test_two_vocabularies_are_refused() -> None:
    with pytest.raises(RegardError, match="one shared vocabulary"):
        config.parse_config(DecoderOnlyConfig, {"layers": 1, "size": 8, "heads": 2}).build(30, 31)


def test_several_lines_have_no_record() -> None:
    with pytest.raises(RegardError, match="one line at a time"):
        build(layers=1).start(batch([(3, 2), (5, 2)]), 4, AttentionRecorder(("decoder",)))
