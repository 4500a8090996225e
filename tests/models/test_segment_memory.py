"""A language model that reads block by block and remembers is the one that reads all at once (Dai 2019, 3.2)."""

import pytest
import torch

from regard.config import parse_config, to_node
from regard.errors import RegardError
from regard.examples.windows import StridedWindows
from regard.models import LanguageModel, LanguageModelConfig, TextBatch
from regard.models.stack import embed_positions
from regard.nn import Layout
from regard.predict.generation import negative_log_likelihoods

POSITIONS = ["transformer_xl", "rotary", "alibi", "t5", "relative", "none"]


def model(**keys: object) -> LanguageModel:
    torch.manual_seed(0)
    keys = {"layers": 3, "size": 16, "inner": 24, "heads": 2, "dropout": 0.0, "memory": 6, **keys}
    made = parse_config(LanguageModelConfig, to_node(keys, "model")).build(30).double().eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made


@pytest.mark.parametrize("residual", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("position", POSITIONS)
def test_two_segments_are_full_attention_over_both(position: str, residual: str) -> None:
    net, ids = model(position=position, residual=residual), torch.randint(30, (2, 12))
    with torch.no_grad():
        whole = net(TextBatch(ids))
        first, carry = net(TextBatch(ids[:, :6]), carry={})
        second, carry = net(TextBatch(ids[:, 6:]), carry=carry)
        state = net.start(TextBatch(ids[:, :1]), 12)
        steps = [net.step(ids[:, n : n + 1], state)[0] for n in range(12)]
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    assert carry["real"].all()


def test_blocks_shorter_than_the_memory() -> None:
    """The last block sees the 8 positions before it, of three blocks, and itself."""
    net, ids = model(position="transformer_xl", memory=8, layers=1), torch.randint(30, (2, 12))
    carry: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for begin in range(0, 12, 3):
            out, carry = net(TextBatch(ids[:, begin : begin + 3]), carry=carry)
        torch.testing.assert_close(out, net(TextBatch(ids[:, 1:]))[:, -3:])
    assert not torch.allclose(out, net(TextBatch(ids))[:, -3:])


@pytest.mark.parametrize("lengths", [(31, 1, 2, 12, 13, 30), (40,)])
def test_likelihoods_with_enough_memory_are_those_of_one_window(lengths: tuple[int, ...]) -> None:
    net, rows = model(position="transformer_xl"), [torch.randint(30, (n,)).tolist() for n in lengths]
    whole = negative_log_likelihoods(net, rows, StridedWindows(50, 50))
    blocks = negative_log_likelihoods(net, rows, StridedWindows(5, 5, memory=50))
    fewer = negative_log_likelihoods(net, rows, StridedWindows(5, 5, memory=2))
    for (a, n), (b, m), (c, _) in zip(whole, blocks, fewer, strict=True):
        assert (n, a) == (m, pytest.approx(b, rel=1e-9))
        assert n < 6 or c != pytest.approx(a, rel=1e-6)


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"position": "sinusoidal"}, "sinusoidal is part of a state that is remembered"),
        ({"position": "rotary", "norm": "batch"}, "memory needs norm: layer, rms or none, not batch"),
        ({"position": "rotary", "attention": {"pattern": "window(4) | global(1)"}}, "memory needs the pattern full or"),
        ({"position": "rotary", "attention": {"compress": "strided_conv"}}, "memory needs compress: none"),
        ({"position": "rotary", "memory": -1}, "memory must be at least 0"),
        ({"position": "transformer_xl", "size": 15, "heads": 3}, "the size 15 is odd"),
    ],
)
def test_what_cannot_be_remembered_is_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        model(**keys)


def test_a_stride_leaves_no_room_for_a_memory() -> None:
    with pytest.raises(ValueError, match="stride must be the context, 8, where a memory of 4 tokens is read"):
        StridedWindows(8, 2, memory=4)


def test_positions_of_a_layer_and_of_the_words_stand_beside_each_other() -> None:
    """Waves are added to the words once, and every layer reads distances in its own way."""
    net = model(position=["sinusoidal", "transformer_xl"], layers=4, memory=0)
    kinds = [type(position).__name__ for position in net.position]
    assert kinds == ["Sinusoidal", "TransformerXL"] * 2
    assert net.position[0] is net.position[2]
    assert net.position[1] is not net.position[3]
    x = torch.zeros(1, 5, 16, dtype=torch.float64)
    both = embed_positions(net.position, x, Layout.of(5))
    torch.testing.assert_close(both, net.position[0](x))
