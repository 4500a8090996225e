"""The recurrent models: word by word in numpy, stepwise equals parallel, padding changes nothing, they learn."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from regard import config
from regard.decoding import Beam, Symbols
from regard.errors import RegardError
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.models.rnn import Rnn, RnnConfig
from regard.nn.record import AttentionRecorder
from tests.models import promises
from tests.models.promises import MARKS, batch
from tests.searches import beam_search

KINDS = [
    {"attends": "previous"},
    {"attends": "previous", "bidirectional": False, "layers": 2},
    {"attends": "current"},
    {"attends": "current", "bidirectional": False, "layers": 2},
    {"attends": "current", "input_feeding": True},
    {"attends": "current", "input_feeding": True, "bidirectional": False, "layers": 2},
    {"attends": "current", "input_feeding": True, "join": "gate"},
]
SCORES = ["additive", "general", "concat", "dot", "scaled_dot", "cosine"]
PATTERNS = ["full", "local_m(2)", "local_p(2)"]
NORMALISERS = ["softmax", "hard", "sparsemax", "entmax"]


def build(entries: int = 30, **keys: Any) -> Rnn:
    """Small, in float64, and with no weight left at 0 or 1."""
    torch.manual_seed(0)
    model = config.parse_config(RnnConfig, {"size": 8, "embedding": 6, **keys}).build(entries, entries).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return model


def close(a: torch.Tensor, b: torch.Tensor | np.ndarray, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a.detach(), torch.as_tensor(b), atol=tolerance, rtol=tolerance)


# --- word by word in numpy -----------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def gru(x, h, w, u, b, c):
    """Rows of the matrices are reset, update, new."""
    (xr, xz, xn), (hr, hz, hn) = np.split(w @ x + b, 3), np.split(u @ h[0] + c, 3)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    return ((1 - z) * np.tanh(xn + r * hn) + z * h[0],)


def lstm(x, h, w, u, b, c):
    """Rows of the matrices are input, forget, cell, output."""
    i, f, g, o = np.split(w @ x + b + u @ h[0] + c, 4)
    cell = sigmoid(f) * h[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


CELLS = {"gru": (gru, 1), "lstm": (lstm, 2)}


class Numpy:
    """One sentence, one layer, no batch: the papers' equations in their order."""

    def __init__(self, model: Rnn) -> None:
        self.c = model.config
        self.p = {name: p.detach().numpy() for name, p in model.named_parameters()}
        self.table = self.p["source_embedding.weight"]
        self.cell, self.parts = CELLS[self.c.cell]

    def embed(self, word):
        return self.table[word] * np.sqrt(self.table.shape[1])

    def step(self, part, x, h, suffix=""):
        names = [f"{part}.layers.{n}_l0{suffix}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        return self.cell(x, h, *(self.p[n] for n in names))

    def walk(self, words, suffix):
        h, states = (np.zeros(self.c.direction),) * self.parts, []
        for word in words:
            h = self.step("encoder", self.embed(word), h, suffix)
            states.append(h)
        return states

    def encode(self, source):
        """The states of each place, both ways where there are two, and where each way ended."""
        ways = [self.walk(source, "")]
        if self.c.bidirectional:
            ways.append(self.walk(source[::-1], "_reverse"))
        both = [ways[0], *[way[::-1] for way in ways[1:]]]
        memory = [np.concatenate([way[j][0] for way in both]) for j in range(len(source))]
        return memory, [way[-1] for way in ways]

    def score(self, q, k):
        name = "decoder.attention.score."
        kind = self.c.attention.score.kind
        if kind == "dot":
            return q @ k
        if kind == "general":
            return q @ self.p[name + "weight"][0] @ k
        v = self.p[name + "vector"][0, 0]
        if kind == "concat":
            return v @ np.tanh(self.p[name + "weight"][0] @ np.concatenate([q, k]))
        return v @ np.tanh(self.p[name + "query"][0] @ q + self.p[name + "key"][0] @ k)

    def context(self, q, memory, t):
        """Luong 2015, 3.2: all places, those within 2 of t, or those within 2 of a predicted p, the far ones less."""
        places, centre = np.arange(len(memory)), float(t)
        if self.c.attention.pattern == "local_p(2)":
            inner, outer = (self.p[f"decoder.attention.learned.0.{n}.weight"] for n in ("inner", "outer"))
            centre = len(memory) * sigmoid(outer[0] @ np.tanh(inner @ q))
        seen = places if self.c.attention.pattern == "full" else places[np.abs(places - centre) <= 2]
        if len(seen) == 0:
            return np.zeros(len(memory[0]))
        weights = softmax(np.array([self.score(q, memory[j]) for j in seen]))
        if self.c.attention.pattern == "local_p(2)":
            weights = weights * np.exp(-((seen - centre) ** 2) / (2 * 1.0**2))  # σ = d/2
        return sum(w * memory[j] for w, j in zip(weights, seen, strict=True))

    def joined(self, c, h):
        if self.c.join == "concat":
            return [c, h]
        if self.c.join == "sum":
            return [c + h]
        g = self.p["decoder.join.gate.weight"] @ np.concatenate([c, h]) + self.p["decoder.join.gate.bias"]
        return [sigmoid(g) * c + (1 - sigmoid(g)) * h]

    def bahdanau(self, source, target):
        memory, ended = self.encode(source)
        s = (np.tanh(self.p["decoder.first.weight"] @ ended[-1][0]), *[np.zeros(self.c.size)] * (self.parts - 1))
        for t, word in enumerate(target):
            c = self.context(s[0], memory, t)
            s = self.step("decoder.rnn", np.concatenate([self.embed(word), c]), s)
            *context, joined = self.joined(c, s[0])
            out = self.p["decoder.readout.weight"] @ np.concatenate([joined, self.embed(word), *context])
            yield self.table @ (out + self.p["decoder.readout.bias"]).reshape(-1, 2).max(1)

    def luong(self, source, target):
        memory, ended = self.encode(source)
        h = tuple(np.concatenate([way[n] for way in ended]) for n in range(self.parts))
        fed = np.zeros(self.c.embedding)
        for t, word in enumerate(target):
            x = [self.embed(word), fed] if self.c.input_feeding else [self.embed(word)]
            h = self.step("decoder.rnn", np.concatenate(x), h)
            joined = np.concatenate(self.joined(self.context(h[0], memory, t), h[0]))
            fed = np.tanh(self.p["decoder.readout.weight"] @ joined)
            yield self.table @ fed


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "keys",
    [
        {"attends": "previous"},
        {"attends": "previous", "bidirectional": False, "score": "concat"},
        {"attends": "current", "bidirectional": False, "input_feeding": True},
        {"attends": "current", "bidirectional": True, "score": "concat"},
        {"attends": "current", "bidirectional": True, "score": "dot", "input_feeding": True},
        {"attends": "previous", "bidirectional": False, "join": "sum"},
        {"attends": "previous", "bidirectional": False, "join": "gate"},
        {"attends": "current", "join": "sum"},
        {"attends": "current", "join": "gate", "input_feeding": True},
    ],
)
def test_the_papers_equations_one_word_at_a_time(cell: str, keys: dict[str, Any], pattern: str) -> None:
    keys = dict(keys)
    score = {"score": keys.pop("score")} if "score" in keys else {}
    model = build(cell=cell, attention={"pattern": pattern, **score}, **keys)
    ours = Numpy(model)
    b = batch([(4, 5), (1, 6), (7, 1)])
    expected = []
    for source, target, real in zip(b.source, b.target, b.target_real, strict=True):
        source = source[source != MARKS.pad]
        walk = ours.bahdanau if model.config.attends == "previous" else ours.luong
        expected += walk(source.tolist(), target[real].tolist())
    close(model(b), np.stack(expected))


def test_widths_that_cannot_be_added_are_refused() -> None:
    with pytest.raises(RegardError, match=r"join: gate needs a context as wide as the state, and they are 16 and 8"):
        build(attends="previous", join="gate")


# --- promises of every model ---------------------------------------------------------------------------------------


def combinations(kind: dict[str, Any]) -> list[dict[str, Any]]:
    """Every choice of attention, under the kinds that can have all; a few under the others."""
    if kind.get("bidirectional", True):
        return [{"pattern": pattern} for pattern in PATTERNS]
    found = product(SCORES, PATTERNS, NORMALISERS)
    return [{"score": s, "pattern": p, "normalise": n} for s, p, n in found]


def stepped(model: Rnn, b: PairBatch, cuts: list[int]) -> torch.Tensor:
    """The scores when the target is read in pieces."""
    state, outs, done = model.start(b, b.target.shape[1]), [], 0
    for cut in [*cuts, b.target.shape[1] - sum(cuts)]:
        out, state = model.step(b.target[:, done : done + cut], state)
        outs.append(out)
        done += cut
    return torch.cat(outs, 1).flatten(0, 1)[b.label_positions]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k.values())))
def test_step_by_step_is_the_whole_and_rows_move(cell: str, kind: dict[str, Any]) -> None:
    """Rows reordered and replaced go on as if they had always stood there, each at its own position."""
    a, b = batch([(5, 6), (3, 4)], seed=1), batch([(2, 6)], seed=2)
    for attention in combinations(kind):
        model = build(cell=cell, attention=attention, **kind)
        with torch.no_grad():
            whole, other = model(a), model(b)
            close(stepped(model, a, [1, 3, 1, 1]), whole)
            state, fresh = model.start(a, 8), model.start(b, 8)
            _, state = model.step(a.target[:, :4], state)
            _, fresh = model.step(b.target[:, :2], fresh)
            state.reorder(torch.tensor([1, 0, 0]))
            state.write(torch.tensor([1]), fresh)
            tokens = torch.stack([a.target[1, 4], b.target[0, 2], a.target[0, 4]])[:, None]
            out, state = model.step(tokens, state)
        assert state.position.tolist() == [5, 3, 5]
        close(out[0, 0], whole.split([7, 5])[1][4])
        close(out[1, 0], other[2])
        close(out[2, 0], whole[4])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k.values())))
def test_a_sentence_alone_and_in_a_padded_batch(cell: str, kind: dict[str, Any]) -> None:
    for pattern in PATTERNS:
        model = build(cell=cell, attention={"pattern": pattern}, **kind)
        promises.alone_as_in_a_padded_batch(model, [(3, 2), (9, 8), (1, 1)])


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k.values())))
def test_gradients_reach_every_parameter(kind: dict[str, Any]) -> None:
    for score, pattern, share in product(SCORES[:3], PATTERNS, ["none", "target", "all"]):
        model = build(share=share, attention={"score": score, "pattern": pattern}, **kind).train()
        model(batch([(5, 6), (3, 4)])).pow(2).sum().backward()
        missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
        assert not missing


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k.values())))
def test_recorded_weights(kind: dict[str, Any]) -> None:
    b = batch([(5, 6), (3, 4)])
    model, record = build(**kind), AttentionRecorder()
    model(b, record)
    (weights,) = record.layers("cross")
    assert weights.shape == (2, 1, 7, 6)
    close(weights.sum(-1), torch.ones(2, 1, 7, dtype=torch.float64), 1e-12)
    assert (weights[1, :, :, 4:] == 0).all()
    assert (weights[0] > 0).all()
    again = AttentionRecorder()
    state = model.start(b, 7, again)
    for word in b.target.split(1, 1):
        _, state = model.step(word, state)
    close(again.layers("cross")[0], weights)


def test_hidden_padding_gets_no_gradient() -> None:
    """What stands at padded places, in source and target, changes neither output nor gradient."""
    b = batch([(5, 6), (3, 4)])
    model = build(share="none")
    model(b).sum().backward()
    assert (model.source_embedding.weight.grad[MARKS.pad] == 0).all()
    assert (model.target_embedding.weight.grad[MARKS.pad] == 0).all()


# --- the choices ---------------------------------------------------------------------------------------------------


def test_sizes_of_the_presets() -> None:
    """By hand, with 2,000 shared entries of 256.

    Bahdanau: encoder 2 · (3·256·(256+256) + 6·256); decoder 3·256·(256+512+256) + 6·256; s₀ 256·256;
    score 256·(256+512) + 256; readout 512·(256+256+512) + 512.
    Luong: encoder 2 layers of 4·256·512 + 8·256; decoder 4·256·(512+256) + 8·256 and 4·256·512 + 8·256;
    score 256·256; readout 256·512.
    """
    count = {
        preset: sum(
            p.numel() for p in config.parse_config(RnnConfig, {"preset": preset}).build(2000, 2000).parameters()
        )
        for preset in ("bahdanau", "luong")
    }
    assert count["bahdanau"] == 512_000 + 789_504 + 787_968 + 65_536 + 196_864 + 524_800
    assert count["luong"] == 512_000 + 1_052_672 + 788_480 + 526_336 + 65_536 + 131_072


def test_the_papers_scores_unless_another_is_chosen() -> None:
    chosen = lambda **keys: config.parse_config(RnnConfig, keys).attention.score.kind  # noqa: E731
    assert chosen() == chosen(preset="bahdanau") == chosen(attention={"normalise": "entmax"}) == "additive"
    assert chosen(preset="luong") == chosen(attends="current", attention={"pattern": "local_p(4)"}) == "general"
    assert chosen(preset="luong", attends="previous", input_feeding=False) == "additive"
    assert chosen(preset="luong", attention={"score": "dot"}) == "dot"
    assert config.parse_config(RnnConfig, {"size": 64}).attention.score.size == 64


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"attends": "previous", "input_feeding": True}, "input_feeding belongs"),
        ({"attends": "previous", "attention": {"score": "dot"}}, "one size, not 256 and 512"),
        ({"attends": "current", "size": 7}, "two directions"),
        ({"attention": {"d_k": 4}}, "means nothing here"),
        ({"attention": {"projection": "shared"}}, "means nothing here"),
        ({"attention": {"pattern": ["full", "local_m(2)"]}}, "only one attention"),
        ({"preset": "luong", "attention": {"score": {"kind": "dot", "init": "compensated"}}}, "query projection"),
        ({"layers": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_what_makes_no_sense_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        config.parse_config(RnnConfig, keys)


def test_causal_belongs_elsewhere() -> None:
    with pytest.raises(ValueError, match="not cross"):
        config.parse_config(RnnConfig, {"attention": {"pattern": "causal"}}).check(10, 10)


def test_the_config_survives_being_written() -> None:
    for preset in ("bahdanau", "luong"):
        made = config.parse_config(RnnConfig, {"preset": preset, "attention": {"pattern": "local_m(2)"}})
        assert config.parse_config(RnnConfig, config.to_plain(made)) == made


def test_how_weights_begin() -> None:
    model = config.parse_config(RnnConfig, {"preset": "luong", "size": 64}).build(300, 300)
    forget = model.encoder.layers.bias_ih_l0.detach()
    assert forget.tolist() == [0.0] * 64 + [1.0] * 64 + [0.0] * 128
    gate = model.decoder.rnn.layers.weight_hh_l1.detach()[64:128]
    close(gate @ gate.T, torch.eye(64), 1e-5)
    bound = (6 / (64 + 128)) ** 0.5  # of one gate by itself: 64 from the word and what is fed
    assert float(model.decoder.rnn.layers.weight_ih_l0.detach().abs().max()) == pytest.approx(bound, rel=0.02)
    small = config.parse_config(RnnConfig, {"preset": "luong", "size": 64, "init": "normal"}).build(300, 300)
    assert float(small.encoder.layers.weight_hh_l0.detach().std()) == pytest.approx(0.02, rel=0.05)


# --- it works --------------------------------------------------------------------------------------------------------


def test_beams_have_the_models_own_probabilities() -> None:
    sources = batch([(5, 1), (3, 1)])
    for kind in KINDS:
        model = build(**kind)
        found = beam_search(model, sources, [6, 6], Symbols(2, 3, (0, 2)), Beam(size=3), nbest=3)
        for row, hypotheses in enumerate(found):
            source = [w for w in sources.source[row].tolist()[:-1] if w not in (MARKS.pad, MARKS.eos)]
            for h in hypotheses:
                b = collate_pairs(RaggedRows.of([source]), RaggedRows.of([h.tokens]), MARKS, MARKS)
                logp = model(b).log_softmax(-1).gather(1, b.labels[:, None]).sum()
                assert h.log_probability == pytest.approx(logp.item(), abs=1e-9)


@pytest.mark.parametrize("cell", CELLS)
def test_bf16_products(cell: str) -> None:
    """Under autocast some states are bf16 and some float32; both ways of stepping must bear it."""
    b = batch([(5, 6), (3, 4)])
    for kind in KINDS:
        model = build(cell=cell, **kind).float()
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            out, parts = model(b), stepped(model, b, [2, 1])
        torch.testing.assert_close(out.float(), model(b).detach(), atol=0.1, rtol=0.05)
        torch.testing.assert_close(parts, out, atol=0.1, rtol=0.05)


@pytest.mark.parametrize("preset, score", [("bahdanau", "additive"), ("luong", "general")])
def test_learns_to_copy(preset: str, score: str) -> None:
    torch.manual_seed(0)
    model = config.parse_config(RnnConfig, {"preset": preset, "size": 32, "layers": 1}).build(14, 14)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

    def copies(seed: int) -> PairBatch:
        g = np.random.default_rng(seed)
        rows = RaggedRows.of([g.integers(4, 14, g.integers(3, 7)) for _ in range(64)])
        return collate_pairs(rows, rows, MARKS, MARKS)

    for step in range(200):
        b = copies(step)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(b), b.labels).backward()
        optimiser.step()
    unseen = copies(10_000)
    assert float((model(unseen).argmax(-1) == unseen.labels).double().mean()) > 0.95
    assert model.config.attention.score.kind == score
