"""The Transformer: counts by hand, torch's layers as oracle, stepwise equals parallel, padding changes nothing."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard import config
from regard.models.batch import RaggedRows, collate_pairs
from regard.models.transformer import Transformer, TransformerConfig
from tests.models import promises
from tests.models.promises import batch


def build(entries: int = 30, target: int | None = None, **keys: object) -> Transformer:
    torch.manual_seed(0)
    small = {"init": "xavier", "layers": 2, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0, **keys}
    return config.parse_config(TransformerConfig, small).build(entries, target or entries).double().eval()


@pytest.mark.parametrize("preset, count", [("base", 63_082_496), ("big", 214_245_376)])
def test_parameter_counts_of_the_paper(preset: str, count: int) -> None:
    """37,000 shared entries, worked by hand: 63.08M and 214.25M."""
    with torch.device("meta"):
        model = config.parse_config(TransformerConfig, {"preset": preset}).build(37_000, 37_000)
    assert sum(p.numel() for p in model.parameters()) == count


def test_sharing_two_and_three_ways() -> None:
    promises.shares_two_and_three_ways(build, 16)
    three, two = build(share="all"), build(share="target")
    assert three.source_embedding.weight is three.output.weight
    assert two.target_embedding.weight is two.output.weight
    assert two.source_embedding.weight is not two.output.weight


def test_the_two_ways_weights_begin() -> None:
    """Xavier's bound is √(6 / (fan in + fan out)) for each projection by itself; normal is 0.02 for every matrix."""
    by_fan, small = build(300, size=64, inner=96), build(300, size=64, inner=96, init="normal")
    for linear, bound in (
        (by_fan.encoder[0].attention.key_value, (6 / 128) ** 0.5),
        (by_fan.decoder[1].feed_forward.expand, (6 / 160) ** 0.5),
    ):
        assert float(linear.weight.detach().abs().max()) == pytest.approx(bound, rel=0.02)
    assert float(by_fan.source_embedding.weight.detach().std()) == pytest.approx(64**-0.5, rel=0.05)
    for name, p in small.named_parameters():
        if p.dim() > 1:
            assert float(p.detach().std()) == pytest.approx(0.02, rel=0.08), name
        else:
            assert set(p.detach().tolist()) <= {0.0, 1.0}


def test_embedding_scale() -> None:
    ids = torch.tensor([5])
    on, off = build(), build(scale_embedding=False)
    torch.testing.assert_close(on.source_embedding(ids), 4 * on.source_embedding.weight[ids])
    torch.testing.assert_close(off.source_embedding(ids), off.source_embedding.weight[ids])


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
    theirs.out_proj.weight.copy_(ours.output.weight)
    theirs.out_proj.bias.copy_(ours.output.bias)


@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_encoder_and_decoder_are_torchs(residual: str) -> None:
    model = build(residual=residual)
    with torch.no_grad():
        for p in model.parameters():  # biases and norms too, so that none is left untested at 0 or 1
            p.add_(torch.randn_like(p) * 0.1)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": residual == "pre_norm", "dtype": torch.float64}
    norms = [nn.LayerNorm(16, dtype=torch.float64) if residual == "pre_norm" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 24, **options), 2, norm=norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 24, **options), 2, norm=norms[1])
    with torch.no_grad():
        for ours, theirs in zip([*model.encoder, *model.decoder], [*encoder.layers, *decoder.layers], strict=True):
            copy_attention(ours.attention, theirs.self_attn)
            if hasattr(ours, "cross"):
                copy_attention(ours.cross, theirs.multihead_attn)
            theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
            theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
            for n, part in enumerate(ours.residuals, 1):
                getattr(theirs, f"norm{n}").load_state_dict(part.norm.state_dict())
        if residual == "pre_norm":
            norms[0].load_state_dict(model.encoder_norm.state_dict())
            norms[1].load_state_dict(model.decoder_norm.state_dict())
    b = batch([(5, 3), (2, 6)])
    ignore = ~b.source_real
    memory, layout = model.encode(b)
    embedded = model.encoder_position[0].embed(model.source_embedding(b.source), layout)
    expected = encoder(embedded, src_key_padding_mask=ignore)
    torch.testing.assert_close(memory[b.source_real], expected[b.source_real])
    from regard.nn.layout import Layout

    length = b.target.shape[1]
    y = model.encoder_position[0].embed(model.target_embedding(b.target), Layout.of(length))
    causal = nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.float64)
    theirs_out = decoder(y, expected, tgt_mask=causal, memory_key_padding_mask=ignore)
    torch.testing.assert_close(model.decode(b.target, Layout.of(b.target.shape[1]), memory, layout), theirs_out)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(["post_norm", "pre_norm"]),
    st.sampled_from(["sinusoidal", "none"]),
)
def test_step_by_step_is_the_parallel_pass(lengths, prompt, residual, position) -> None:
    promises.stepwise_as_at_once(build(residual=residual, position=position), lengths, prompt)


def test_a_sentence_alone_and_in_a_padded_batch() -> None:
    promises.alone_as_in_a_padded_batch(build(), [(3, 2), (9, 8), (1, 1)])


def test_each_side_is_padded_with_its_own_id() -> None:
    b = collate_pairs(
        RaggedRows.of([[5], [6, 7]]),
        RaggedRows.of([[5, 6], [7]]),
        SimpleNamespace(pad=8, bos=0, eos=1),
        SimpleNamespace(pad=20, bos=2, eos=3),
    )
    assert b.source.tolist() == [[5, 1, 8], [6, 7, 1]]
    assert b.target.tolist() == [[2, 5, 6], [2, 7, 20]]
    assert b.labels.tolist() == [5, 6, 3, 7, 3]


def test_state_moves_and_replaces_rows() -> None:
    promises.rows_move(build())


def test_rows_are_replaced_for_ever_in_fixed_storage() -> None:
    """Finished rows give way to new sentences, shorter sources included, many more than the storage is long."""
    model = build()
    sentences = [batch([(n, 3)], seed=n) for n in (4, 2, 3, 1, 4, 2)]
    with torch.no_grad():
        first = batch([(4, 3), (4, 3)], seed=9)
        state = model.start(first, 4)
        for sentence in sentences:
            state.write(torch.tensor([1]), model.start(sentence, 4))
            for t in range(4):
                tokens = torch.stack([first.target[0, t % 4], sentence.target[0, t]])[:, None]
                if t == 0:
                    state.write(torch.tensor([0]), model.start(batch([(4, 3)], seed=7), 4))
                out, state = model.step(tokens, state)
            torch.testing.assert_close(out[1, 0], model(sentence)[3], atol=1e-9, rtol=1e-9)
