"""The language model: counts, stepwise equals parallel for every choice, prompts, padding, packing, searches."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard import config
from regard.decoding import Beam, Greedy, Sample, Symbols
from regard.errors import RegardError
from regard.models.batch import RaggedRows, TextBatch, collate_blocks, collate_texts
from regard.models.lm import LanguageModel, LanguageModelConfig
from regard.nn.record import AttentionRecorder
from tests.models.test_positions import ALL
from tests.searches import beam_search, greedy_search, sample

MARKS = {"pad": 0, "bos": 2, "eos": 3}
SYMBOLS = Symbols(bos=2, eos=3, suppressed=(0, 2))
CHOICES = [
    *({"position": position} for position in ALL),
    {"position": "none", "attention": {"score": "additive"}},
    {"attention": {"score": ["general", "cosine"]}},
    {"attention": {"pattern": ["window(2)", "global(1) | window(1)"]}},
    {"attention": {"pattern": "bigbird(block=2, window=1, global=1, random=1)"}, "position": "rotary"},
    {"attention": {"normalise": ["sparsemax", "entmax"]}},
    {"attention": {"compress": {"kind": "strided_conv", "factor": 2}}, "position": "alibi"},
    {"attention": {"projection": "shared", "d_k": 3, "d_v": 5}},
    {"residual": "post_norm", "activation": "swiglu", "output": "own", "scale_embedding": True},
    {"norm": "batch", "feed_forward": "none"},
]
PACKED = [c for c in CHOICES if "compress" not in c.get("attention", {})]
each_choice = pytest.mark.parametrize("keys", CHOICES, ids=str)


def build(**keys: object) -> LanguageModel:
    """Weights are large, so that everything matters."""
    torch.manual_seed(0)
    position = {"kind": "learned", "length": 16}
    small = {"layers": 2, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0, "position": position, **keys}
    model = config.parse_config(LanguageModelConfig, small).build(30).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


def rows(lengths: list[int], seed: int = 0) -> list[list[int]]:
    g = np.random.default_rng(seed)
    return [g.integers(4, 30, n).tolist() for n in lengths]


def to_continue(given: list[list[int]], pad: int, bos: int, eos: int) -> TextBatch:
    """<s> y₁ … yₙ is read, y₁ … yₙ </s> is said."""
    _, real = RaggedRows.of(given).padded(pad, before=bos)
    said = RaggedRows.of(given).padded(pad, after=eos)[0][real]
    return replace(
        collate_texts([[bos, *row] for row in given], pad),
        labels=torch.from_numpy(said),
        label_positions=torch.from_numpy(real).flatten().nonzero()[:, 0],
    )


def batch(lengths: list[int], seed: int = 0) -> TextBatch:
    return to_continue(rows(lengths, seed), **MARKS)


def close(a: torch.Tensor, b: torch.Tensor, room: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, atol=room, rtol=room)


@pytest.mark.parametrize(
    "preset, count", [("small", 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)]
)
def test_parameter_counts_of_gpt2(preset: str, count: int) -> None:
    """Those of the released models, with 50,257 entries and 1,024 places."""
    with torch.device("meta"):
        model = config.parse_config(LanguageModelConfig, {"preset": preset}).build(50_257)
    assert sum(p.numel() for p in model.parameters()) == count


def test_weights_begin_smaller_where_many_sublayers_add_up() -> None:
    keys = {"layers": 8, "size": 64, "inner": 256, "heads": 4}
    model = config.parse_config(LanguageModelConfig, keys).build(100)
    layer = model.layers[5]
    for weight, spread in (
        (layer.attention.query.weight, 0.02),
        (layer.feed_forward.expand.weight, 0.02),
        (layer.attention.output.weight, 0.02 / 4),  # √16 sub-layers
        (layer.feed_forward.contract.weight, 0.02 / 4),
        (model.embedding.weight, 0.02),
    ):
        assert float(weight.detach().std()) == pytest.approx(spread, rel=0.05)


@each_choice
def test_step_by_step_is_the_parallel_pass(keys: dict) -> None:
    model, b = build(**keys), batch([9, 4, 9])
    with torch.no_grad():
        state = model.start(collate_texts([[], [], []], 0), 10)
        outs = []
        for tokens in b.ids.split([3, 1, 1, 2, 1, 1, 1], 1):
            out, state = model.step(tokens, state)
            outs.append(out)
        close(torch.cat(outs, 1).flatten(0, 1)[b.label_positions], model(b))


@each_choice
def test_prompts_of_different_lengths_are_read_at_once(keys: dict) -> None:
    """After its prompt every row goes on as the parallel pass does, wherever the others stand."""
    model, given = build(**keys), rows([6, 1, 9, 3])
    prompts = collate_texts(given, 0)
    more = torch.tensor(rows([4, 4, 4, 4], seed=5))
    with torch.no_grad():
        state = model.start(prompts, 5)
        out, state = model.step(prompts.first_tokens(2), state)
        outs = [out]
        for t in range(4):
            out, state = model.step(more[:, t : t + 1], state)
            outs.append(out)
        stepped = torch.cat(outs, 1)
        for row, prompt in enumerate(given):
            whole = torch.tensor([[*prompt, *more[row].tolist()]])
            places = torch.arange(len(prompt) - 1, whole.shape[1])
            close(stepped[row], model(TextBatch(whole, label_positions=places)))


def test_rows_without_a_prompt_begin_with_the_mark() -> None:
    assert collate_texts([[], [5, 6], [7]], 0).first_tokens(2).tolist() == [[2], [6], [7]]
    assert collate_texts([[], []], 0).first_tokens(2).tolist() == [[2], [2]]
    model = build()
    with torch.no_grad():
        state = model.start(collate_texts([[], [5, 6]], 0), 3)
        out, _ = model.step(torch.tensor([[2], [6]]), state)
        close(out[0, 0], model(TextBatch(torch.tensor([[2]]), label_positions=torch.tensor([0])))[0])
        close(out[1, 0], model(TextBatch(torch.tensor([[5, 6]]), label_positions=torch.tensor([1])))[0])


@each_choice
def test_rows_move_and_are_replaced(keys: dict) -> None:
    model, a, b = build(**keys), batch([8, 8], seed=1), batch([8], seed=2)
    with torch.no_grad():
        state = model.start(collate_texts(a.ids[:, :6].tolist(), 0), 4)
        state.reorder(torch.tensor([1, 0, 0]))
        fresh = model.start(collate_texts(b.ids[:, :3].tolist(), 0), 4)
        state.write(torch.tensor([1]), fresh)
        assert state.position.tolist() == [5, 2, 5]
        tokens = torch.stack([a.ids[1, 5:8], b.ids[0, 2:5], a.ids[0, 5:8]])
        out, _ = model.step(tokens, state)
        whole_a, whole_b = model(a).split(9), model(b)
    close(out[0], whole_a[1][5:8])
    close(out[1], whole_b[2:5])
    close(out[2], whole_a[0][5:8])


@each_choice
def test_a_text_alone_and_in_a_padded_batch(keys: dict) -> None:
    model, lengths = build(**keys), [3, 9, 1]
    whole = model(batch(lengths)).split([n + 1 for n in lengths])
    for row, expected in zip(rows(lengths), whole, strict=True):
        close(model(to_continue([row], **MARKS)), expected, 1e-12)


@pytest.mark.parametrize("keys", PACKED, ids=str)
def test_packed_documents_do_not_see_each_other(keys: dict) -> None:
    """Each is scored as it is alone, though it stands elsewhere in a row."""
    model = build(**keys)
    first, second, third, fourth = rows([5, 3, 4, 4])
    ids = np.array([[*first, *second, 9], [*third, *fourth, 9]])
    document = torch.tensor([[0] * 5 + [1] * 3, [0] * 4 + [1] * 4])
    packed = replace(collate_blocks(ids), document=document)
    assert packed.labels.tolist() == [*first[1:], *second, 9, *third[1:], *fourth, 9]
    found = model(packed)[[n for n in range(16) if n not in (4, 11)]]  # those two say what the next begins with
    parts = [model(collate_blocks(np.array([text]))) for text in (first, [*second, 9], third, [*fourth, 9])]
    close(found, torch.cat(parts), 1e-12)


def test_documents_that_are_packed_cannot_be_compressed() -> None:
    model = build(attention={"compress": "strided_conv"})
    with pytest.raises(RegardError, match="would mix the documents"):
        model(replace(collate_blocks(np.array([[5, 6, 7]])), document=torch.tensor([[0, 1]])))


@each_choice
def test_no_place_sees_a_later_one(keys: dict) -> None:
    model, b = build(**keys), batch([9])
    ids = b.ids.clone()
    ids[0, 6] = 4 + (ids[0, 6] - 3) % 26
    before, after = model(b), model(TextBatch(ids, labels=b.labels, label_positions=b.label_positions))
    close(before[:6], after[:6], 1e-12)
    assert (before[6:] - after[6:]).abs().max() > 1e-3


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_scores(smoothing: float) -> None:
    model, b = build(), batch([9, 2])
    plain = torch.nn.functional.cross_entropy(model(b), b.labels, label_smoothing=smoothing, reduction="sum")
    wanted = torch.autograd.grad(plain, list(model.parameters()))
    loss = model(b, smoothing=smoothing)
    close(loss, plain)
    for a, c in zip(torch.autograd.grad(loss, list(model.parameters())), wanted, strict=True):
        close(a, c)


def log_probability(model: LanguageModel, prompt: list[int], words: list[int]) -> float:
    ids = torch.tensor([[*prompt, *words, 3]])
    places = torch.arange(len(prompt) - 1, ids.shape[1] - 1)
    scores = model(TextBatch(ids, label_positions=places)).log_softmax(-1)
    return float(scores[torch.arange(len(places)), ids[0, len(prompt) :]].sum())


def test_the_searches_go_on_from_prompts() -> None:
    """Greedy, sampling and beam give what they give alone, with the model's own probabilities."""
    model, given = build(), rows([5, 1, 3])
    prompts = collate_texts(given, 0)
    with torch.no_grad():
        for search, settings in ((greedy_search, Greedy()), (sample, Sample(seed=3))):
            found = search(model, prompts, [6] * 3, SYMBOLS, settings)
            for n, hypothesis in enumerate(found):
                assert hypothesis.log_probability == pytest.approx(
                    log_probability(model, given[n], hypothesis.tokens), abs=1e-9
                )
                keys = {"keys": [n]} if search is sample else {}
                alone = search(model, collate_texts([given[n]], 0), [6], SYMBOLS, settings, **keys)[0]
                assert alone.tokens == hypothesis.tokens
        assert len({tuple(h.tokens) for h in found}) == 3


def test_a_wide_beam_finds_the_best_of_all() -> None:
    torch.manual_seed(1)
    keys = {"layers": 1, "size": 8, "inner": 8, "heads": 2, "init": "xavier"}
    model = config.parse_config(LanguageModelConfig, keys).build(7).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.5)
        words = [1, 4, 5, 6]
        prompts = [[4], [5, 1, 6]]
        found = beam_search(model, collate_texts(prompts, 0), [3, 3], SYMBOLS, Beam(size=100, length_penalty=0.0))
        said = [list(s) for n in range(4) for s in itertools.product(words, repeat=n)]
        for prompt, hypotheses in zip(prompts, found, strict=True):
            best = max(said, key=lambda s: log_probability(model, prompt, s))
            assert hypotheses[0].tokens == best
            assert hypotheses[0].score == pytest.approx(log_probability(model, prompt, best), abs=1e-9)


def test_it_learns_to_count_in_half_precision() -> None:
    """Each place must find what came two before it, and add one; a model that sees the future would do better still."""
    torch.manual_seed(0)
    keys = {"layers": 2, "size": 32, "inner": 64, "heads": 2, "dropout": 0.0, "init": "xavier"}
    model = config.parse_config(LanguageModelConfig, keys).build(12)
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    g = np.random.default_rng(0)
    for _ in range(150):
        ids = g.integers(0, 12, (16, 9))
        for t in range(2, 9):
            ids[:, t] = (ids[:, t - 2] + 1) % 12
        b = collate_blocks(ids)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(b, smoothing=0.0) / len(b.label_positions)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    guessing = float(np.log(12)) / 8  # the second of eight words cannot be known
    assert guessing - 0.02 < float(loss.detach()) < guessing + 0.15


def test_weights_are_recorded_step_by_step() -> None:
    model, b = build(), batch([6, 6])
    whole, stepped = AttentionRecorder(("decoder",)), AttentionRecorder(("decoder",))
    with torch.no_grad():
        model(b, whole)
        state = model.start(collate_texts(b.ids[:, :4].tolist(), 0), 4, stepped)
        model.step(b.ids[:, 3:], state)
        for a, c in zip(stepped.layers("decoder"), whole.layers("decoder"), strict=True):
            close(a, c)
        with pytest.raises(ValueError, match="equally long"):
            model.start(collate_texts([[5], [6, 7]], 0), 4, AttentionRecorder())


def test_the_causal_kernel_is_used_in_training() -> None:
    """Padding costs no mask: causality hides it."""
    model = build()
    model(batch([9, 3]))
    assert {layer.attention.path for layer in model.layers} == {"sdpa"}
    layout = batch([9, 3]).layout(padding=False)
    assert layout.real is None
    assert layout.right_padded


def test_lengths_are_checked_before_any_data() -> None:
    assert build().longest == 16
    with pytest.raises(ValueError, match=r"position\.length is 16"):
        build().config.check(17)
    with pytest.raises(ValueError, match="linformer belongs to the encoder"):
        config.parse_config(LanguageModelConfig, {"attention": {"compress": "linformer"}}).check(16)
    with pytest.raises(RegardError, match="structural positions belong to the encoder"):
        config.parse_config(LanguageModelConfig, {"position": "structural"})
    with pytest.raises(RegardError, match="17 tokens, but learned positions end at 16"):
        build()(batch([16]))


def test_a_batch_moves_as_one() -> None:
    b = replace(collate_blocks(np.array([[5, 6, 7, 8]]), names=(4,)), document=torch.tensor([[0, 0, 1]]))
    moved = b.to("meta")
    assert moved.rows == (4,)
    for name in ("ids", "document", "labels", "label_positions"):
        assert getattr(moved, name).device.type == "meta"
    assert moved.segments is None
