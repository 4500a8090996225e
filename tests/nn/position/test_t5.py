"""T5's buckets and numbers against Hugging Face's."""

import pytest
import torch
from transformers import T5Config as TheirConfig
from transformers.models.t5.modeling_t5 import T5Attention

from regard.nn.layout import AttentionContext, Layout
from regard.nn.position import T5Config
from regard.nn.sizes import Sizes


@pytest.mark.parametrize("buckets, distance", [(32, 128), (32, 20), (8, 16), (64, 256), (20, 100), (4, 3), (7, 50)])
@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_buckets(buckets: int, distance: int, place: str) -> None:
    position = T5Config(buckets=buckets, distance=distance).build(Sizes.of(4, 1), place)
    away = torch.arange(-3 * distance, 3 * distance + 1)
    ours = position.bucket[away.clamp(-distance, distance) + distance]
    theirs = T5Attention._relative_position_bucket(away, place == "encoder", buckets, distance)
    assert torch.equal(ours, theirs)


def test_two_buckets_are_two_sides() -> None:
    position = T5Config(buckets=2, distance=3).build(Sizes.of(4, 1))
    assert position.bucket.tolist() == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_numbers_are_t5s(place: str) -> None:
    config = TheirConfig(
        d_model=8, num_heads=4, d_kv=2, relative_attention_num_buckets=8, relative_attention_max_distance=20
    )
    config.is_decoder = place == "decoder"
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    position = T5Config(buckets=8, distance=20).build(Sizes.of(8, 4), place).double()
    position.numbers.data.copy_(theirs.relative_attention_bias.weight)
    q = torch.zeros(1, 4, 1, 2)
    whole = AttentionContext(Layout.of(50), Layout.of(50))
    torch.testing.assert_close(position.bias(q, whole).dense(whole), theirs.compute_bias(50, 50))
    step = AttentionContext(Layout(torch.tensor([[9], [30]]), 31), Layout.of(31))  # two rows of a cache
    dense = position.bias(q, step).dense(step)
    torch.testing.assert_close(dense[:1], theirs.compute_bias(1, 31, past_seen_tokens=9))
    torch.testing.assert_close(dense[1:], theirs.compute_bias(1, 31, past_seen_tokens=30))
