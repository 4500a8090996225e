"""The best of a vocabulary, against topk and log_softmax."""

import pytest
import torch

from regard.accel.topk import topk
from regard.decoding import Symbols
from regard.decoding.logits_processors import top_tokens


@pytest.mark.parametrize("entries", [5, 127, 1280, 5003, 32000])
@pytest.mark.parametrize("count", [1, 8])
def test_as_topk(entries: int, count: int) -> None:
    scores = torch.randn(7, entries, generator=torch.Generator().manual_seed(entries), dtype=torch.float64)
    scores[2, :] = -torch.inf
    scores[2, entries - 1] = 1.0  # all but one forbidden, in what is left over from the blocks
    values, places = topk(scores, count)
    expected = scores.topk(min(count, entries), -1)
    torch.testing.assert_close(values, expected.values)
    torch.testing.assert_close(scores.gather(1, places), values)
    finite = expected.values > -torch.inf
    assert torch.equal(places[finite], expected.indices[finite])


def test_log_probabilities_some_rows_at_a_time() -> None:
    """More rows than fit a chunk; forbidden words take no mass from the others; half precision is summed in float32."""
    symbols = Symbols(2, 3, (0, 2))
    logits = torch.randn(40, 20_000).bfloat16()
    logits[:, 0] = 30.0
    found = top_tokens(logits, symbols, 4, torch.full((40, 1), 3))
    logp = logits.float().log_softmax(-1)
    torch.testing.assert_close(found.extra, logp[:, 3:4])
    logp[:, [0, 2]] = -torch.inf
    torch.testing.assert_close(found.logp, logp.topk(4).values)
    torch.testing.assert_close(logp.gather(1, found.tokens), found.logp)
    assert found.logp.dtype == torch.float32
