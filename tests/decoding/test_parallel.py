"""Parallel decoding: the words of greedy search, the distribution of sampling, whatever the draft guesses."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.accel.decoding_graph import FixedStorageRunner
from regard.decoding import Blockwise, DecodingConfig, Engine, Greedy, RequestQueue, Sample, SearchSpec, Speculative
from regard.decoding import parallel as module
from regard.decoding.context import ContextWindows
from regard.decoding.contract import GenerationRequest
from regard.decoding.drafts import NgramDraft
from regard.decoding.parallel import GreedyCheck
from regard.errors import RegardError
from regard.models.batch import RaggedRows, TextBatch, collate_pairs
from regard.models.lm import LanguageModel
from regard.nn.embedding import Output, ProposalHeads
from tests.decoding import small, test_streams
from tests.decoding.small import MODELS, SYMBOLS, batch, constrained, queue, sentences
from tests.models import test_transformer
from tests.models.promises import MARKS

KINDS = ["transformer", "rotary, window", "learned, compressed", "additive, local"]
DRAFTS = [
    Speculative(),
    Speculative(draft="layers(1)", tokens=3),
    Speculative(draft="another", tokens=2),
    Speculative(draft="itself", tokens=5),
]


def heads(**keys: Any) -> Any:
    return test_transformer.build(small.ENTRIES, proposals=4, **keys)


def engine(model: Any, runner: Any = None, fuse: bool = True) -> Engine:
    other = test_transformer.build(small.ENTRIES, layers=1)
    return Engine(model, runner, fuse, lambda name: model if name == "itself" else other)


def tokens(found: list[list[Any]]) -> list[list[int]]:
    return [hypotheses[0].tokens for hypotheses in found]


# --- greedy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", DRAFTS, ids=lambda config: config.draft)
@pytest.mark.parametrize("name", KINDS)
def test_the_words_of_greedy_search(name: str, config: Speculative) -> None:
    """In slots that are refilled, in fixed storage, by fused steps or the model's own; scores are the same too."""
    model, rows = MODELS[name](), sentences(9)
    expected = Engine(model).decode(queue(rows, 9), SYMBOLS, Greedy())
    for runner, fuse, slots in ((None, True, 4), (FixedStorageRunner, True, 4), (None, False, 1)):
        used = engine(model, runner, fuse)
        found = used.decode(queue(rows, slots), SYMBOLS, config)
        assert tokens(found) == tokens(expected)
        assert [h.score for (h,) in found] == pytest.approx([h.score for (h,) in expected], abs=1e-9)
    acceptance = used.acceptance(config)
    assert acceptance is not None
    assert acceptance.tokens == sum(len(each) + 1 for each in tokens(found))
    assert acceptance.steps < acceptance.tokens <= acceptance.steps * (config.tokens + 1)
    if config.draft == "itself":
        assert acceptance.by_position == [1.0] * 5  # every guess is what the model says


@pytest.mark.parametrize("model", [heads(), heads(position={"kind": "rotary"}, residual="pre_norm")])
def test_heads_give_the_words_of_greedy_search(model: Any) -> None:
    rows = sentences(9)
    expected = tokens(Engine(model).decode(queue(rows, 9), SYMBOLS, Greedy()))
    for runner in (None, FixedStorageRunner):
        assert tokens(engine(model, runner).decode(queue(rows, 4), SYMBOLS, Blockwise())) == expected


@pytest.mark.parametrize("accept", ["top_k(3)", "distance(2)"])
def test_near_guesses_do_not_depend_on_the_request_before(accept: str) -> None:
    """A slot has no guesses of the request that it held before: those might be near enough to be kept."""
    model, rows = heads(), sentences(9)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.1)
    alone = [tokens(engine(model).decode(queue([row], 1), SYMBOLS, Blockwise(accept=accept)))[0] for row in rows]
    for slots in (1, 3, 9):
        assert tokens(engine(model).decode(queue(rows, slots), SYMBOLS, Blockwise(accept=accept))) == alone


def test_guesses_beyond_the_last_position_of_a_table() -> None:
    """Its last tokens are decoded though guesses would have positions that the model does not know."""
    model = test_transformer.build(small.ENTRIES, position={"kind": "learned", "length": 12})
    rows = [row for row in sentences(9) if len(row) < 12]
    given = replace(queue(rows, 3), requests=[GenerationRequest(11, n) for n in range(len(rows))])
    expected = Engine(model).decode(given, SYMBOLS, Greedy())
    assert max(map(len, tokens(expected))) == 11
    for config in (Speculative(tokens=6), Speculative(draft="itself", tokens=7)):
        for runner in (None, FixedStorageRunner):
            found = engine(model, runner).decode(given, SYMBOLS, config)
            assert tokens(found) == tokens(expected)
            assert [h.score for (h,) in found] == pytest.approx([h.score for (h,) in expected], abs=1e-9)


def test_a_draft_that_knows_fewer_positions() -> None:
    model, draft = (test_transformer.build(small.ENTRIES, position={"kind": "learned", "length": n}) for n in (12, 6))
    used = Engine(model, load_draft=lambda name: draft)
    with pytest.raises(RegardError, match="the draft knows 6 positions, fewer than the model, so some texts"):
        used.decode(queue(sentences(2), 2), SYMBOLS, Speculative(draft="another"))


def test_forced_beginnings() -> None:
    model, rows = MODELS["transformer"](), sentences(6)
    given = constrained(queue(rows, 3), prefixes=[(7, 9, 11, 13), (), (5,), (8, 8), (), (30, 4, 4)])
    expected = tokens(Engine(model).decode(given, SYMBOLS, Greedy()))
    assert expected[0][:4] == [7, 9, 11, 13]
    for config in (Speculative(tokens=2), Speculative(draft="another")):
        assert tokens(engine(model).decode(given, SYMBOLS, config)) == expected
    for config in (Speculative(draft="itself"), Speculative(draft="itself", temperature=1.0)):
        used = engine(model)
        used.decode(given, SYMBOLS, config)
        acceptance = used.acceptance(config)
        assert acceptance is not None
        assert acceptance.by_position == [1.0] * 4  # it guesses after the forced tokens, not after its own


@pytest.mark.parametrize(
    "config", [Speculative(), Speculative(draft="layers(1)"), Speculative(draft="itself", tokens=7)]
)
def test_a_stream_longer_than_the_context(config: DecodingConfig) -> None:
    """A context that fills in the middle of a block is read anew where it is read anew token by token."""
    net, prompts = test_streams.model(), [test_streams.PROMPT, (2, 5), (2, 4, 8, 15, 16, 23)]

    def rows(search: DecodingConfig) -> Any:
        requests = [GenerationRequest(40, n, prompt=prompt) for n, prompt in enumerate(prompts)]
        given = RequestQueue(lambda chosen: test_streams.read([prompts[n] for n in chosen]), requests, 3)  # type: ignore[arg-type, misc]
        windows, spec = ContextWindows(12, test_streams.read), SearchSpec.of(given, test_streams.NEVER, search)  # type: ignore[arg-type]
        used = Engine(net, load_draft=lambda name: net)  # type: ignore[arg-type, return-value]
        return test_streams.rows_of(used.begin(given, spec, context=windows), 3)

    expected, found = rows(Greedy()), rows(config)
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], abs=1e-9)
    assert found[2] == expected[2] == ["limit"] * 3


# --- sampling ------------------------------------------------------------------------------------------------------

FEW = 9  # entries of a vocabulary
DRAWS = 6000


def drawn(config: Sample, length: int = 2, prefix: tuple[int, ...] = ()) -> float:
    """χ² of `length` drawn tokens against the model's own probabilities, less its mean, in standard deviations."""
    torch.manual_seed(3)
    model, other = (test_transformer.build(FEW, size=8, heads=2, layers=n) for n in (2, 1))
    with torch.no_grad():
        for each in (model, other):
            for p in each.parameters():
                p.add_(torch.randn_like(p) * 0.25)
    source = batch([np.array([5, 6, 7])])
    requests = [GenerationRequest(length, n, prefix) for n in range(DRAWS)]
    given = RequestQueue(lambda rows: batch([np.array([5, 6, 7])] * len(rows)), requests, 1500)
    found = Engine(model, load_draft=lambda name: other).decode(given, SYMBOLS, config)  # type: ignore[arg-type]
    counts = Counter(tuple([*hypothesis.tokens, *[SYMBOLS.eos] * length][:length]) for (hypothesis,) in found)
    expected = {(): 1.0}  # of everything that may have been drawn so far
    for place in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for said, p in expected.items():
            after = np.eye(FEW)[prefix[place] if place < len(prefix) else SYMBOLS.eos]
            if place >= len(prefix) and SYMBOLS.eos not in said:
                with torch.no_grad():
                    state = model.start(source, length + 2)
                    logits = model.step(torch.tensor([[SYMBOLS.bos, *said]]), state)[0][0, -1]
                after = probabilities(logits, config, said)
            longer |= {(*said, token): p * float(after[token]) for token in after.nonzero()[0]}
        expected = longer
    assert not counts.keys() - expected.keys()
    chi2 = sum((counts[said] - DRAWS * p) ** 2 / (DRAWS * p) for said, p in expected.items())
    freedom = len(expected) - 1
    return float((chi2 - freedom) / np.sqrt(2 * freedom))


def probabilities(logits: torch.Tensor, config: Sample, said: tuple[int, ...]) -> np.ndarray:
    """A repetition penalty, a temperature, top-k, top-p and min-p by hand; suppressed tokens never."""
    scores = logits.numpy().copy()
    for token in set(said):
        scores[token] *= 1 / config.repetition_penalty if scores[token] > 0 else config.repetition_penalty
    scores[list(SYMBOLS.suppressed)] = -np.inf
    p = np.exp((scores - scores.max()) / config.temperature)
    p /= p.sum()
    order = np.argsort(-p)
    kept = order[np.cumsum(p[order]) - p[order] < config.top_p][: config.top_k or None]
    kept = kept[p[kept] >= config.min_p * p.max()]
    return np.where(np.isin(np.arange(FEW), kept), p, 0) / p[kept].sum()


@pytest.mark.parametrize("draft", ["ngrams", "layers(1)", "another"])
@pytest.mark.parametrize(
    "shape",
    [{}, {"temperature": 0.7, "top_k": 4}, {"repetition_penalty": 3.0}, {"top_p": 0.8, "min_p": 0.2}],
    ids=["plain", "top-k", "penalty", "top-p"],
)
def test_the_distribution_of_sampling(draft: str, shape: dict[str, Any]) -> None:
    assert drawn(Speculative(**{"temperature": 1.0, "draft": draft, "tokens": 2, **shape})) < 4


@pytest.mark.parametrize("tokens", [1, 3])
def test_the_distribution_of_several_steps_and_after_a_prefix(tokens: int) -> None:
    """Of three tokens: what was guessed after a token that is not kept is drawn again by the same random numbers."""
    config = Speculative(temperature=1.0, draft="another", tokens=tokens, repetition_penalty=1.5)
    assert drawn(config, 3) < 4
    assert drawn(config, 3, (7,)) < 4


def no_residual(p: Any, q: Any, guess: Any, u: Any) -> Any:
    return u[:, 1:2] * q.gather(1, guess) < p.gather(1, guess), module.draw_token(p, u[:, 2])


def all_kept(p: Any, q: Any, guess: Any, u: Any) -> Any:
    return p.gather(1, guess) > 0, module.draw_token((p - q).clamp(min=0), u[:, 2])


def number_of_the_guess(p: Any, q: Any, guess: Any, u: Any) -> Any:
    return u[:, :1] * q.gather(1, guess) < p.gather(1, guess), module.draw_token((p - q).clamp(min=0), u[:, 2])


def number_of_the_check(p: Any, q: Any, guess: Any, u: Any) -> Any:
    kept = u[:, 1:2] * q.gather(1, guess) < p.gather(1, guess)
    return kept, module.draw_token((p - q).clamp(min=0), u[:, 1])


@pytest.mark.parametrize("fault", [no_residual, all_kept, number_of_the_guess, number_of_the_check])
def test_a_wrong_rule_is_found(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The residual forgotten, every guess kept, or a random number that has been used for something else."""

    def keep(p: Any, guesses: Any, n: int, numbers: Any) -> Any:
        guess = guesses.tokens[:, n : n + 1]
        kept, other = fault(p, guesses.probabilities[:, n], guess, numbers)
        return kept[:, 0], torch.where(kept, guess, other[:, None])[:, 0]

    monkeypatch.setattr(module.SamplingCheck, "_keep", staticmethod(keep))
    assert drawn(Speculative(temperature=1.0, draft="another", tokens=2)) > 8


def test_what_is_drawn_does_not_depend_on_the_batch() -> None:
    """Nor on slots, nor on storage; a repetition penalty counts what was said."""
    model, rows = MODELS["transformer"](), sentences(8)
    for config in (
        Speculative(temperature=1.2, draft="another", top_p=0.9),
        Speculative(temperature=1.0, draft="layers(1)", repetition_penalty=1.5),
    ):
        expected = tokens(engine(model).decode(queue(rows, 8), SYMBOLS, config))
        for runner, slots in ((None, 1), (FixedStorageRunner, 3)):
            assert tokens(engine(model, runner).decode(queue(rows, slots), SYMBOLS, config)) == expected
        assert expected != tokens(engine(model).decode(queue(rows, 8), SYMBOLS, replace(config, seed=2)))


# --- rules and guesses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule, number", [("exact", None), ("top_k", 3), ("distance", 2)])
def test_rules_of_acceptance(rule: str, number: int | None) -> None:
    """Against a loop: guesses up to the first that the rule does not keep, and the likeliest after them."""
    g = torch.Generator().manual_seed(4)
    logits, guessed = torch.randn(40, 5, 12, generator=g).double(), torch.randint(1, 12, (40, 4), generator=g)
    guessed[:20, :2] = logits[:20, :2].argmax(-1)
    none = torch.zeros(40, 5, dtype=torch.bool), torch.zeros(40, 5, dtype=torch.long)
    check = GreedyCheck(replace(SYMBOLS, suppressed=(0,)), rule, number)
    place = torch.arange(5).expand(40, 5)
    block, logp, accepted = check.check(logits.clone(), module.Guesses(guessed), place, *none)
    logps = logits.log_softmax(-1)
    logits[..., 0] = -torch.inf
    lengths = set()
    for row in range(40):
        said, n = [], 0
        for n in range(5):
            order = logits[row, n].argsort(descending=True).tolist()
            token = int(guessed[row, n]) if n < 4 else -9
            near = {"exact": [order[0]], "top_k": order[:3], "distance": range(order[0] - 2, order[0] + 3)}[rule]
            said.append(token if token in near else order[0])
            if token not in near:
                break
        assert accepted[row] == n
        assert block[row, : n + 1].tolist() == said
        assert logp[row, : n + 1].tolist() == pytest.approx([float(logps[row, i, t]) for i, t in enumerate(said)])
        lengths.add(n)
    assert len(lengths) > 2


def test_ngrams_are_what_followed_last() -> None:
    """Against a loop over text: the longest of the last three tokens that stood there before, then the latest."""
    g = np.random.default_rng(0)
    rows = [g.integers(4, 8, n).tolist() for n in g.integers(1, 20, 50)]
    draft = NgramDraft(4, len(rows), 5, 20, torch.device("cpu"))
    slots = torch.arange(len(rows))
    draft.begin(slots, [GenerationRequest(5, n, lookup=tuple(row)) for n, row in enumerate(rows)])
    zero = torch.zeros(len(rows), dtype=torch.long)
    found = draft.guess(zero[:, None], [], zero, lambda x, n: (x.argmax(-1), None)).tokens.tolist()
    matched = 0
    for row, guessed in zip(rows, found, strict=True):
        best = None
        for size in (3, 2, 1):
            ends = [n for n in range(size, len(row)) if row[n - size : n] == row[len(row) - size :]]
            if size <= len(row) and ends:
                best = ends[-1]
                break
        if best is not None:
            matched += 1
            followed = row[best:]
            assert guessed == [followed[n % len(followed)] for n in range(4)]
    assert matched > 30


# --- heads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [True, False])
def test_the_loss_of_heads(mean: bool) -> None:
    """Head i learns the token i places after the next one of the same text; by torch's cross-entropy."""
    torch.manual_seed(0)
    own, output = ProposalHeads(3, 8, 12, mean).double(), Output(None, 11, 8).double()
    x, labels = torch.randn(9, 8).double(), torch.randint(0, 11, (9,))
    place = torch.tensor([0, 1, 2, 3, 5, 6, 8, 9, 10])  # texts of 4, 2 and 3
    each = []
    for head in range(3):
        pairs = [(t, t + head) for t in range(9 - head) if place[t + head] - place[t] == head]
        states = torch.stack([x[t] + (own.networks[head - 1](x[t]) if head else 0) for t, _ in pairs])
        right = labels[[after for _, after in pairs]]
        each.append(float(F.cross_entropy(output(states), right, label_smoothing=0.1, reduction="sum").detach()))
        assert len(pairs) == [9, 6, 3][head]
    losses = [float(own.loss(output, x, labels, place, 0.1).detach()) for _ in range(40)]
    if mean:
        assert losses == pytest.approx([sum(each) / 3] * 40)
    else:
        assert {round(loss, 9) for loss in losses} == {round(loss, 9) for loss in each}


def test_frozen_heads_learn_alone() -> None:
    rows = RaggedRows.of([[4, 5, 6, 7], [8, 9]])
    given = collate_pairs(rows, rows, MARKS, MARKS)
    for frozen in (True, False):
        model = test_transformer.build(20, proposals={"heads": 3, "loss": "mean", "frozen": frozen}).train()
        model(given, None, 0.1).backward()
        moved = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
        assert all(name.startswith("proposals.") for name in moved) == frozen
        assert {name for name in moved if name.endswith("expand.weight")} >= {
            f"proposals.networks.{n}.expand.weight" for n in range(2)
        }
        assert {name for name, p in model.named_parameters() if p.requires_grad} >= moved
    plain = test_transformer.build(20)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("proposals.")})
    assert torch.equal(plain(given, None, 0.1), model.eval()(given, None, 0.1))  # measured, it is the model's own loss


def test_a_language_model_learns_heads_in_its_documents() -> None:
    ids = torch.randint(4, 30, (2, 6))
    document = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    given = TextBatch(ids, document=document, labels=ids.flatten(), label_positions=torch.arange(12))
    place = given.label_places()
    for ahead, told in ((1, [0, 1, 3, 4, 6, 7, 8, 9, 10]), (2, [0, 3, 6, 7, 8, 9]), (5, [6])):
        assert (place[ahead:] == place[:-ahead] + ahead).nonzero()[:, 0].tolist() == told
    alone = replace(given, document=None).label_places()
    assert int((alone[1:] - alone[:-1] == 1).sum()) == 10


# --- what cannot be ------------------------------------------------------------------------------------------------


def test_models_that_cannot_take_back_what_was_read() -> None:
    rows = sentences(2)
    for name in ("rnn, previous", "conv"):
        with pytest.raises(RegardError, match="takes back what was read, and needs one model with a KV cache"):
            Engine(MODELS[name]()).decode(queue(rows, 2), SYMBOLS, Speculative())
    recurrent, plain = test_transformer.build(small.ENTRIES, decoder_self="ssru"), MODELS["transformer"]()
    with pytest.raises(RegardError, match="and the model has a recurrent decoder, which cannot"):
        Engine(recurrent).decode(queue(rows, 2), SYMBOLS, Speculative())
    with pytest.raises(RegardError, match="and the draft has a recurrent decoder, which cannot"):
        Engine(plain, load_draft=lambda name: recurrent).decode(queue(rows, 2), SYMBOLS, Speculative(draft="x"))
    with pytest.raises(RegardError, match="no proposal heads"):
        Engine(MODELS["transformer"]()).decode(queue(rows, 2), SYMBOLS, Blockwise())
    with pytest.raises(RegardError, match="layers\\(2\\) needs a model of more layers than that, and this one has 2"):
        Engine(MODELS["transformer"]()).decode(queue(rows, 2), SYMBOLS, Speculative(draft="layers(2)"))


@pytest.mark.parametrize("keys, said", [
    ({"tokens": 0}, "tokens must be from 1 to 64, not 0"), ({"draft": "layers(0)"}, "at least one layer"),
    ({"temperature": -1.0}, "temperature must be above 0"), ({"draft": " "}, "draft is empty"),
])  # fmt: skip
def test_impossible_settings(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Speculative(**keys)


@pytest.mark.parametrize("accept", ["top_k", "top_k(0)", "exact(2)", "nearest(2)", "distance(-1)"])
def test_impossible_acceptance(accept: str) -> None:
    with pytest.raises(ValueError, match="accept is"):
        Blockwise(accept=accept)


def test_an_own_language_model_is_its_own_draft() -> None:
    """Whose first layers write into its cache, and leave no trace there."""
    net: LanguageModel = test_streams.model()
    part = net.first_layers(1)
    assert [id(p) for p in part.parameters()] == [
        id(p) for name, p in net.named_parameters() if not name.startswith("layers.1")
    ]
    assert len(net.layers) == 2
