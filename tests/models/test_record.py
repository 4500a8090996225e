"""What an attention saw: recorded beside the output, at every step of decoding and through every move of a beam."""

import pytest
import torch

from regard import config
from regard.decoding import Beam, Greedy, Hypothesis, Sample, Symbols
from regard.models.batch import PairBatch, RaggedRows, collate_pairs, collate_sources
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.record import ROLES, AttentionRecorder
from tests.searches import beam_search, greedy_search, sample

SYMBOLS = Symbols(bos=2, eos=3, suppressed=(0, 2))
SOURCES = [[5, 6, 7, 8, 9], [11], [7, 5, 12]]


class Marks:
    pad, bos, eos = 0, 2, 3


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    small = {"layers": 2, "decoder_layers": 3, "size": 16, "inner": 24, "heads": 2, "init": "xavier"}
    return config.parse_config(TransformerConfig, small).build(20, 20).double().eval()


def forced(model: Transformer, source: list[int], said: list[int]) -> dict[str, torch.Tensor]:
    """The weights of one pair in a single pass over the whole target, as a batch of its own."""
    record = AttentionRecorder()
    model(collate_pairs(RaggedRows.of([source]), RaggedRows.of([said]), Marks(), Marks()), record)
    return record.trace([0])


def check(model: Transformer, found: list[Hypothesis]) -> None:
    for source, h in zip(SOURCES, found, strict=True):
        assert h.attention is not None
        expected = forced(model, source, h.tokens)
        s, t = len(source) + 1, len(h.tokens) + 1
        shapes = {"encoder": (2, 2, s, s), "decoder": (3, 2, t, t), "cross": (3, 2, t, s)}
        for place in ROLES:
            seen = h.attention[place]
            layers, heads, queries, keys = shapes[place]
            assert (seen[..., keys:] == 0).all()  # padding, and what was not said yet
            torch.testing.assert_close(seen[:, :, :queries, :keys], expected[place], atol=1e-9, rtol=1e-9)
            assert expected[place].shape == (layers, heads, queries, keys)


def batch() -> PairBatch:
    return PairBatch(*collate_sources(RaggedRows.of(SOURCES), 0, 3))


def test_beams_take_their_attention_along(model: Transformer) -> None:
    found = beam_search(model, batch(), [9, 4, 12], SYMBOLS, Beam(size=4), 3, AttentionRecorder())
    for rank in range(3):
        check(model, [options[rank] for options in found])
    plain = beam_search(model, batch(), [9, 4, 12], SYMBOLS, Beam(size=4), 3)
    assert [[h.tokens for h in o] for o in plain] == [[h.tokens for h in o] for o in found]
    assert plain[0][0].attention is None


def test_greedy_and_sampling_record_too(model: Transformer) -> None:
    check(model, greedy_search(model, batch(), [9, 4, 12], SYMBOLS, Greedy(), AttentionRecorder()))
    check(model, sample(model, batch(), [9, 4, 12], SYMBOLS, Sample(), None, AttentionRecorder()))


def test_only_what_is_asked_for(model: Transformer) -> None:
    record = AttentionRecorder(roles=("cross",))
    model.start(batch(), 4, record)
    assert record.trace([0]) == {}
    model(collate_pairs(RaggedRows.of(SOURCES), RaggedRows.of(SOURCES), Marks(), Marks()), record)
    assert set(record.trace([0])) == {"cross"}


def test_gradients_flow_through_a_record_that_keeps_the_graph(model: Transformer) -> None:
    record = AttentionRecorder(roles=("cross",), keep_graph=True)
    model(collate_pairs(RaggedRows.of(SOURCES), RaggedRows.of(SOURCES), Marks(), Marks()), record)
    record.layers("cross")[1][..., 0].sum().backward()
    gradient = model.decoder[1].cross.query.weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


def test_rows_that_are_recorded_cannot_be_replaced(model: Transformer) -> None:
    state = model.start(batch(), 4, AttentionRecorder())
    with pytest.raises(ValueError, match="cannot be replaced"):
        state.write(torch.tensor([0]), model.start(batch(), 4))
