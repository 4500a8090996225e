"""Tokens as they are said, against the searches and transformers' own ways of shaping scores."""

import numpy as np
import pytest
import torch

from regard import config
from regard.decoding import Greedy, Sample, Symbols, TokenSampler, TokenStream, greedy_token
from regard.decoding.logits_processors import RepetitionPenalty, filtered_distribution
from regard.decoding.scores import log_probabilities
from regard.models.batch import TextBatch, collate_texts
from regard.models.lm import LanguageModel, LanguageModelConfig
from tests.searches import greedy_search, sample

SYMBOLS = Symbols(bos=2, eos=3, suppressed=(0, 2))
PROMPT = [2, 9, 5, 7]


def model(length: int = 64) -> LanguageModel:
    torch.manual_seed(1)
    position = {"kind": "learned", "length": length}
    keys = {"layers": 2, "size": 16, "inner": 24, "heads": 2, "dropout": 0.0, "position": position}
    made = config.parse_config(LanguageModelConfig, keys).build(30).double().eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return made


def read(rows: list[list[int]]) -> TextBatch:
    return collate_texts(rows, 0)


def rows_of(stream: TokenStream, count: int) -> tuple[list[list[int]], list[float]]:
    said: list[list[int]] = [[] for _ in range(count)]
    totals = [0.0] * count
    for row, token, logp in stream:
        said[row].append(token)
        totals[row] += logp
    return said, totals


def test_greedy_is_greedy_search() -> None:
    net = model()
    (expected,) = greedy_search(net, read([PROMPT]), [20], SYMBOLS, Greedy())
    (said,), _ = rows_of(TokenStream(net, read, [PROMPT], 20, 64, SYMBOLS, greedy_token), 1)
    assert [token for token in said if token != SYMBOLS.eos] == expected.tokens


def test_draws_are_those_of_sample() -> None:
    net, choices = model(), Sample(temperature=1.3, top_k=9, top_p=0.9, min_p=0.02, seed=7)
    expected = sample(net, read([PROMPT] * 4), [15] * 4, SYMBOLS, choices)
    drawn = TokenSampler.of(choices, SYMBOLS, range(4), 15, torch.tensor([PROMPT] * 4))
    said, totals = rows_of(TokenStream(net, read, [PROMPT] * 4, 15, 64, SYMBOLS, drawn), 4)
    for found, total, h in zip(said, totals, expected, strict=True):
        assert [token for token in found if token != SYMBOLS.eos] == h.tokens
        if found[-1] == SYMBOLS.eos:
            assert total == pytest.approx(h.log_probability)


def test_past_the_context_it_goes_on_from_the_last_half() -> None:
    net, context = model(8), 8
    (said,), _ = rows_of(TokenStream(net, read, [PROMPT], 30, context, Symbols(2, 29, (0, 2)), greedy_token), 1)
    history, start = list(PROMPT), 0
    for token in said:
        if len(history) - start > context:
            start = len(history) - context // 2
        ids = torch.tensor([history[start:]])
        logits = net(TextBatch(ids, label_positions=torch.tensor([ids.shape[1] - 1])))
        assert token == log_probabilities(logits, Symbols(2, 29, (0, 2))).argmax().item()
        history.append(token)
    assert len(said) == 30 or said[-1] == 29


def test_a_row_can_be_stopped_and_the_others_go_on() -> None:
    net, choices = model(), Sample(seed=3)
    never = Symbols(2, 3, (0, 2, 3))

    def stream() -> TokenStream:
        sampler = TokenSampler.of(choices, never, range(3), 12, torch.tensor([PROMPT] * 3))
        return TokenStream(net, read, [PROMPT] * 3, 12, 64, never, sampler)

    whole, _ = rows_of(stream(), 3)
    cut, said = stream(), [[], [], []]  # type: ignore[var-annotated]
    for row, token, _ in cut:
        said[row].append(token)
        if row == 1 and len(said[1]) == 4:
            cut.stop(1)
    assert said == [whole[0], whole[1][:4], whole[2]]


def test_penalties_and_cuts_are_those_of_transformers() -> None:
    from transformers import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor

    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 40, generator=g, dtype=torch.float64) * 3
    seen = torch.randint(0, 40, (5, 12), generator=g)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(seen, logits)
    penalty = RepetitionPenalty(1.7, seen[:, :11], 40)
    penalty.add(torch.arange(5), seen[:, 11])
    torch.testing.assert_close(penalty.apply(logits, torch.arange(5)), expected, rtol=0, atol=0)

    kept = MinPLogitsWarper(0.1)(seen, logits) > -torch.inf
    _, ids, keep = filtered_distribution(torch.log_softmax(logits, -1), Sample(min_p=0.1))
    assert torch.equal(torch.zeros_like(keep).scatter(1, ids, keep), kept)


def test_drawing_follows_the_probabilities() -> None:
    logp = torch.log_softmax(torch.tensor([[1.0, 2.0, 0.0, -1.0]]).double(), -1).expand(20_000, 4)
    drawn = TokenSampler.of(Sample(top_k=3), Symbols(0, 3), range(20_000), 1, torch.empty(20_000, 0, dtype=torch.long))
    tokens = drawn(logp, logp, torch.arange(20_000), 0)
    expected = logp[0, :3].exp() / logp[0, :3].exp().sum()
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / 20_000, [*expected, 0.0], atol=0.01)


TEMPERATURES = [{"temperature": float(said)} for said in ("nan", "inf", "-1", "0")]


@pytest.mark.parametrize("keys", [{"min_p": 1.0}, {"min_p": -0.1}, {"repetition_penalty": 0.0}, *TEMPERATURES])
def test_impossible_choices(keys: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(keys))} must be"):
        Sample(**keys)
