"""ConvS2S: a loop in numpy as oracle, the future hidden, receptive fields by gradients, stepwise equals parallel."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from regard import config
from regard.models.conv import ConvConfig, ConvS2S
from regard.nn.convolution import Convolution, scale_gradient
from regard.nn.layout import Layout
from regard.nn.record import AttentionRecorder
from tests.models import promises
from tests.models.promises import MARKS, batch, sentences

CHOICES = [
    {},
    {"encoder": "window", "kernel": 5, "position": "none"},
    {"attention": {"score": "additive", "normalise": "sparsemax"}, "position": "sinusoidal", "scale_embedding": True},
    {"attention": {"pattern": ["local_p(2)", "full"]}},
]


def build(entries: int = 30, target: int | None = None, **keys: object) -> ConvS2S:
    torch.manual_seed(0)
    small = {"layers": 2, "size": 8, "dropout": 0.0, **keys}
    model = config.parse_config(ConvConfig, small).build(entries, target or entries).double().eval()
    with torch.no_grad():
        for p in model.parameters():  # biases too, so that none is left untested at 0
            p.add_(torch.randn_like(p) * 0.1)
    return model


# --- the same in numpy, one place at a time ------------------------------------------------------------------------


def numpy_convolution(layer: Convolution, x: np.ndarray, first: int) -> np.ndarray:
    """Window i holds x[i + first + j·dilation]; what lies outside is zero."""
    weight, bias = layer.linear.weight.detach().numpy(), layer.linear.bias.detach().numpy()
    out = np.zeros((len(x), len(weight)))
    for i in range(len(x)):
        for j in range(layer.kernel):
            place = i + first + j * layer.dilation
            if 0 <= place < len(x):
                out[i] += weight[:, j * x.shape[1] : (j + 1) * x.shape[1]] @ x[place]
    return out + bias


def numpy_gated(layer: Convolution, x: np.ndarray, first: int) -> np.ndarray:
    a, b = np.split(numpy_convolution(layer, x, first), 2, -1)
    return (a / (1 + np.exp(-b)) + x) * np.sqrt(0.5)


def numpy_logits(model: ConvS2S, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """One pair without padding [T, V]."""
    d = {name: p.detach().numpy() for name, p in model.named_parameters()}
    k = model.config.kernel
    e = d["source_embedding.weight"][source] + d["encoder_position.table"][: len(source)]
    g = d[f"{'source' if model.config.share == 'all' else 'target'}_embedding.weight"][target]
    g = g + d["decoder_position.table"][: len(target)]
    z = e
    for layer in model.encoder:
        if model.config.encoder.kind == "gated":
            z = numpy_gated(layer.convolution, z, -(k // 2))
        else:
            z = np.maximum(numpy_convolution(layer.convolution, z, -(k // 2)), 0)
    h = g
    for layer in model.decoder:
        h = numpy_gated(layer.convolution, h, -(k - 1))
        for i in range(len(target)):
            query = layer.query.linear.weight.detach().numpy() @ h[i] + layer.query.linear.bias.detach().numpy()
            scores = z @ ((query + g[i]) * np.sqrt(0.5))
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            context = sum(w * (z[j] + e[j]) * np.sqrt(0.5) for j, w in enumerate(weights))
            m = len(source)
            h[i] = (h[i] + m * np.sqrt(1 / m) * context) * np.sqrt(0.5)
    return h @ model.output.weight.detach().numpy().T


@pytest.mark.parametrize("encoder", ["gated", "window"])
@pytest.mark.parametrize("share", ["none", "target", "all"])
def test_logits_are_those_of_the_equations(share: str, encoder: str) -> None:
    model = build(share=share, encoder=encoder, kernel=3, decoder_layers=3)
    lengths = [(5, 3), (1, 7), (8, 1)]
    found = model(batch(lengths)).split([t + 1 for _, t in lengths])
    for (source, target), logits in zip(sentences(lengths), found, strict=True):
        expected = numpy_logits(model, np.append(source, MARKS.eos), np.insert(target, 0, MARKS.bos))
        np.testing.assert_allclose(logits.detach().numpy(), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("dilation", [1, 3])
def test_windows_are_torchs_convolution(dilation: int) -> None:
    layer = Convolution(6, 10, 3, dilation).double()
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    weight = layer.linear.weight.unflatten(1, (3, 6)).transpose(1, 2)  # [out, D, k]
    for ours, padding in ((layer.centred(x, None), (dilation, dilation)), (layer.causal(x)[0], (2 * dilation, 0))):
        theirs = F.conv1d(F.pad(x.mT, padding), weight, layer.linear.bias, dilation=dilation).mT
        torch.testing.assert_close(ours, theirs)


# --- who sees what -------------------------------------------------------------------------------------------------


def test_no_place_sees_a_later_target() -> None:
    promises.no_place_sees_a_later_target(build(share="none"))


@pytest.mark.parametrize("encoder", ["gated", "window"])
@pytest.mark.parametrize("layers, kernel", [(1, 3), (3, 3), (2, 5)])
def test_a_word_sees_as_far_as_the_layers_reach(layers: int, kernel: int, encoder: str) -> None:
    """layers · (kernel − 1) + 1 words, as many on each side."""
    keys = {"encoder": {"kind": "window", "activation": "gelu"}} if encoder == "window" else {}
    model = build(layers=layers, kernel=kernel, **keys)
    x = torch.randn(1, 31, 8, dtype=torch.float64, requires_grad=True)
    z = x
    for layer in model.encoder:
        z = layer(z, None)
    (gradient,) = torch.autograd.grad(z[0, 15].sum(), x)
    seen = gradient[0].abs().sum(-1).nonzero()[:, 0].tolist()
    reach = layers * (kernel - 1) // 2
    assert seen == list(range(15 - reach, 15 + reach + 1))
    assert len(seen) == layers * (kernel - 1) + 1


@pytest.mark.parametrize("choices", CHOICES)
def test_a_sentence_alone_and_in_a_padded_batch(choices: dict) -> None:
    promises.alone_as_in_a_padded_batch(build(**choices), [(3, 2), (9, 8), (1, 1)])


# --- step by step --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(CHOICES),
)
def test_step_by_step_is_the_parallel_pass(lengths, prompt, choices) -> None:
    promises.stepwise_as_at_once(build(**choices), lengths, prompt)


@pytest.mark.parametrize("choices", CHOICES)
def test_state_moves_and_replaces_rows(choices: dict) -> None:
    promises.rows_move(build(**choices))


def test_weights_are_recorded_for_every_decoder_layer() -> None:
    model, b = build(decoder_layers=3), batch([(4, 3), (2, 5)])
    parallel, stepped = AttentionRecorder(), AttentionRecorder()
    with torch.no_grad():
        model(b, parallel)
        state = model.start(b, 6, stepped)
        for tokens in b.target.split(1, 1):
            _, state = model.step(tokens, state)
    assert [w.shape for w in parallel.layers("cross")] == [(2, 1, 6, 5)] * 3
    for one, other in zip(parallel.layers("cross"), stepped.layers("cross"), strict=True):
        torch.testing.assert_close(one, other)
        assert (one[1, :, :, 3:] == 0).all()  # padding of the second source
        torch.testing.assert_close(one.sum(-1), torch.ones_like(one.sum(-1)))


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", CHOICES)
def test_gradients_reach_every_parameter(choices: dict) -> None:
    promises.gradients_reach_every_parameter(build(share="none", **choices))


def test_the_encoders_gradient_is_shared_by_the_attentions() -> None:
    """1 / (2 · attentions) into the encoder's layers, and nothing less into the source's embeddings beside them."""
    x = torch.ones(3, requires_grad=True)
    (scale_gradient(x, 0.125) * 2).sum().backward()
    assert x.grad.tolist() == [0.25] * 3
    model = build(decoder_layers=4)
    b = batch([(4, 3)])
    seen = {}

    def keep(_, __, out: torch.Tensor) -> None:
        out.register_hook(lambda g: seen.update(encoder=g))

    model.encoder[-1].register_forward_hook(keep)
    memory, values, _ = model.encode(b)
    e = model.encoder_position.embed(model.source_embedding(b.source), Layout.of(5))
    torch.testing.assert_close(values, (memory + e) * 0.5**0.5)
    values.sum().backward()
    torch.testing.assert_close(seen["encoder"], torch.full_like(memory, 0.5**0.5 / 8))


def test_weights_begin_as_in_the_paper() -> None:
    """N(0, 4p/n) before a gate, N(0, 1/n) before none, N(0, 0.1²) for tables (Gehring 2017, 3.5); biases zero."""
    torch.manual_seed(0)
    model = config.parse_config(ConvConfig, {"layers": 1, "size": 64, "dropout": 0.2}).build(300, 300)
    for weight, std in (
        (model.encoder[0].convolution.linear.weight, (4 * 0.8 / 192) ** 0.5),
        (model.decoder[0].convolution.linear.weight, (4 * 0.8 / 192) ** 0.5),
        (model.decoder[0].query.linear.weight, (1 / 64) ** 0.5),
        (model.source_embedding.weight, 0.1),
        (model.encoder_position.table, 0.1),
    ):
        assert float(weight.detach().std()) == pytest.approx(std, rel=0.03)
    assert not model.encoder[0].convolution.linear.bias.any()
    by_fan = config.parse_config(ConvConfig, {"layers": 1, "size": 64, "init": "xavier"}).build(300, 300)
    bound = (6 / (192 + 64)) ** 0.5  # each half of the gate by itself
    assert float(by_fan.encoder[0].convolution.linear.weight.detach().abs().max()) == pytest.approx(bound, rel=0.02)


def test_it_learns_to_copy_and_beam_search_reads_it() -> None:
    torch.manual_seed(0)
    promises.learns_to_copy(config.parse_config(ConvConfig, {"layers": 2, "size": 48, "dropout": 0.0}).build(14, 14))


# --- the config ----------------------------------------------------------------------------------------------------


def test_sharing_two_and_three_ways() -> None:
    promises.shares_two_and_three_ways(build, 8)


@pytest.mark.parametrize(
    "keys, match",
    [
        ({"kernel": 4}, "kernel must be odd"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"position": "rotary"}, "known: counting, learned, none, sinusoidal"),
        ({"attention": {"d_k": 4}}, "no projections"),
        ({"attention": {"score": {"kind": "dot", "init": "compensated"}}}, "query projection"),
    ],
)
def test_impossible_choices_are_refused(keys: dict, match: str) -> None:
    with pytest.raises(Exception, match=match):
        config.parse_config(ConvConfig, keys)


def test_positions_that_end_too_early_are_refused() -> None:
    short = config.parse_config(ConvConfig, {"position": {"kind": "learned", "length": 20}})
    short.check(20, 20)
    with pytest.raises(ValueError, match=r"position\.length is 20, shorter than the longest input of 21 tokens"):
        short.check(20, 21)
    assert short.build(9, 9).longest == 20
    assert config.parse_config(ConvConfig, {"position": "sinusoidal"}).build(9, 9).longest is None
