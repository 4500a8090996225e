"""Streams of the engine: the tokens of whole results, as they come; and transformers' own logits processors."""

import numpy as np
import pytest
import torch

from regard import config
from regard.accel.decoding_graph import FixedStorageRunner
from regard.decoding import (
    Beam,
    DecodingConfig,
    Engine,
    GenerationRequest,
    Greedy,
    RequestQueue,
    Sample,
    SearchSpec,
    Symbols,
)
from regard.decoding.context import ContextWindows
from regard.decoding.engine import ContinuousBatch
from regard.decoding.logits_processors import (
    filtered_distribution,
    log_probabilities,
    penalise_repetition,
    random_numbers,
    sample_tokens,
)
from regard.models.batch import TextBatch, collate_texts
from regard.models.lm import LanguageModel, LanguageModelConfig
from tests.decoding import small

SYMBOLS = Symbols(bos=2, eos=3, suppressed=(0, 2))
NEVER = Symbols(bos=2, eos=3, suppressed=(0, 2, 3))
PROMPT = (2, 9, 5, 7)
SHAPED = Sample(temperature=1.3, top_k=9, top_p=0.9, min_p=0.02, repetition_penalty=1.4, seed=7)


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


def stream(
    net: LanguageModel, config: DecodingConfig, prompts: list[tuple[int, ...]], limit: int, context: int = 64,
    symbols: Symbols = SYMBOLS,
) -> ContinuousBatch:  # fmt: skip
    requests = [GenerationRequest(limit, n, prompt=prompt) for n, prompt in enumerate(prompts)]
    queue = RequestQueue(lambda rows: read([prompts[n] for n in rows]), requests, len(prompts))  # type: ignore[misc]
    return Engine(net).begin(queue, SearchSpec.of(queue, symbols, config), context=ContextWindows(context, read))  # type: ignore[arg-type]


def rows_of(batch: ContinuousBatch, count: int) -> tuple[list[list[int]], list[float], list[str | None]]:
    """Tokens, log-probabilities and ends by request."""
    rows: list[list[int]] = [[] for _ in range(count)]
    totals, ends = [0.0] * count, [None] * count
    while batch.busy:
        for id_, token, total, ended in batch.stream_step():
            assert ends[id_] is None
            rows[id_].append(token)
            totals[id_], ends[id_] = total, ended  # type: ignore[call-overload]
    return rows, totals, ends  # type: ignore[return-value]


@pytest.mark.parametrize("config", [Greedy(), SHAPED], ids=["greedy", "sample"])
def test_a_stream_gives_the_tokens_of_whole_results(config: DecodingConfig) -> None:
    """Prompts of several lengths, that end at several times; at the limit a stream has no end."""
    net, prompts, limit = model(), [PROMPT, PROMPT[:2], (2, 4, 8, 15, 16, 23), PROMPT], 15
    requests = [GenerationRequest(limit, n, prompt=prompt) for n, prompt in enumerate(prompts)]
    expected = Engine(net).decode(
        RequestQueue(lambda rows: read([prompts[n] for n in rows]), requests, 4), SYMBOLS, config
    )  # type: ignore[misc]
    rows, totals, ends = rows_of(stream(net, config, prompts, limit), 4)
    assert {"end", "limit"} >= set(ends)
    for tokens, total, ended, (whole,) in zip(rows, totals, ends, expected, strict=True):
        assert tokens == [*whole.tokens, *([SYMBOLS.eos] if ended == "end" else [])]
        assert ended == ("limit" if len(whole.tokens) == limit else "end")
        if ended == "end":
            assert total == pytest.approx(whole.log_probability)


@pytest.mark.parametrize("name", small.MODELS)
@pytest.mark.parametrize("config", [Greedy(), Sample(seed=7, repetition_penalty=1.5)], ids=["greedy", "sample"])
@pytest.mark.parametrize("fixed", [False, True], ids=["plain", "fixed storage"])
def test_all_ways_through_the_engine_agree(name: str, config: DecodingConfig, fixed: bool) -> None:
    """Batches, streams in few slots, and requests that arrive later, for every kind of model."""
    rows = small.sentences(10)
    engine = Engine(small.MODELS[name](), FixedStorageRunner if fixed else None)
    expected = [found[0].tokens for found in engine.decode(small.queue(rows, 10), small.SYMBOLS, config)]
    assert len({tuple(tokens) for tokens in expected}) > 4

    queue = small.queue(rows, 3)
    spec = SearchSpec.of(queue, small.SYMBOLS, config)
    streamed, _, _ = rows_of(engine.begin(queue, spec), len(rows))
    assert [[token for token in tokens if token != 3] for tokens in streamed] == expected

    assert queue.dummy_batch is not None
    length = max(queue.source_lengths)
    arriving = engine.open_batch(spec, queue.collate, lambda size: queue.dummy_batch(size, length), 2 * length + 5, 4)  # type: ignore[misc]
    results: dict[int, list[int]] = {}
    for n in range(len(rows)):
        arriving.add(n, queue.requests[n])
        for _ in range(2):
            results |= {id_: hypotheses[0].tokens for id_, hypotheses in arriving.step()}
    while arriving.busy:
        results |= {id_: hypotheses[0].tokens for id_, hypotheses in arriving.step()}
    assert [results[n] for n in range(len(rows))] == expected


def test_past_the_context_it_goes_on_from_the_last_half() -> None:
    """Rows with prompts of several lengths, whose contexts are full at several times."""
    net, context, prompts = model(8), 8, [PROMPT, PROMPT[:1], (2, 4, 8, 15, 16, 23, 4, 6)]
    symbols = Symbols(2, 29, (0, 2))
    rows, _, ends = rows_of(stream(net, Greedy(), prompts, 30, context, symbols), 3)
    for prompt, tokens, ended in zip(prompts, rows, ends, strict=True):
        history, start = list(prompt), 0
        for token in tokens:
            if len(history) - start > context:
                start = len(history) - context // 2
            ids = torch.tensor([history[start:]])
            logits = net(TextBatch(ids, label_positions=torch.tensor([ids.shape[1] - 1])))
            assert token == log_probabilities(logits, symbols).argmax().item()
            history.append(token)
        assert ended == ("limit" if len(tokens) == 30 else "end")
    assert max(map(len, rows)) == 30


def test_contexts_in_fixed_storage() -> None:
    """As a GPU has it: rows that arrive one after the other, are read anew, and leave, in storage that stays."""
    net, context, prompts = model(8), 8, [PROMPT, PROMPT[:1], (2, 4, 8, 15, 16, 23, 4, 6), PROMPT]
    expected, _, _ = rows_of(stream(net, SHAPED, prompts, 30, context, NEVER), 4)
    spec = SearchSpec(NEVER, SHAPED, longest_prompt=8)
    batch = Engine(net, FixedStorageRunner).open_batch(
        spec, lambda ids: read([prompts[n] for n in ids]), lambda size: read([(2,)] * size), 30, 2, context,
        ContextWindows(context, read),
    )  # fmt: skip
    for n, prompt in enumerate(prompts):
        batch.add(n, GenerationRequest(30, n, prompt=prompt))
    assert rows_of(batch, 4)[0] == expected


def test_a_row_can_be_stopped_and_the_others_go_on() -> None:
    net, config = model(), Sample(seed=3)
    whole, _, _ = rows_of(stream(net, config, [PROMPT] * 3, 12, symbols=NEVER), 3)
    batch, rows = stream(net, config, [PROMPT] * 3, 12, symbols=NEVER), [[], [], []]  # type: ignore[var-annotated]
    while batch.busy:
        for token in batch.stream_step():
            rows[token.id].append(token.token)
        if len(rows[1]) == 4:
            batch.cancel({1})
    assert rows == [whole[0], whole[1][:4], whole[2]]


def test_a_beam_has_no_stream() -> None:
    with pytest.raises(TypeError, match="a beam has no tokens before its end"):
        stream(model(), Beam(size=2), [PROMPT], 5).stream_step()


def test_penalties_and_cuts_are_those_of_transformers() -> None:
    from transformers import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor

    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 40, generator=g, dtype=torch.float64) * 3
    seen = torch.randint(0, 40, (5, 12), generator=g)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(seen, logits)
    none = torch.full((5, 3), -1)
    torch.testing.assert_close(penalise_repetition(logits, torch.cat([none, seen], 1), 1.7), expected, rtol=0, atol=0)

    kept = MinPLogitsWarper(0.1)(seen, logits) > -torch.inf
    _, ids, keep = filtered_distribution(torch.log_softmax(logits, -1), Sample(min_p=0.1))
    assert torch.equal(torch.zeros_like(keep).scatter(1, ids, keep), kept)


def test_drawing_follows_the_probabilities() -> None:
    logp = torch.log_softmax(torch.tensor([[1.0, 2.0, 0.0, -1.0]]).double(), -1).expand(20_000, 4)
    tokens = sample_tokens(logp, Sample(top_k=3), random_numbers([(1, key) for key in range(20_000)], 1)[:, 0])
    expected = logp[0, :3].exp() / logp[0, :3].exp().sum()
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / 20_000, [*expected, 0.0], atol=0.01)


TEMPERATURES = [{"temperature": float(said)} for said in ("nan", "inf", "-1", "0")]


@pytest.mark.parametrize("keys", [{"min_p": 1.0}, {"min_p": -0.1}, {"repetition_penalty": 0.0}, *TEMPERATURES])
def test_impossible_choices(keys: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(keys))} must be"):
        Sample(**keys)
