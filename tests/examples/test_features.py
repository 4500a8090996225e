"""Rows of features: padded so that shapes repeat, and never beyond the positions that a model has."""

import pytest

from regard.examples.features import Feature, FeatureRow, pad_features


@pytest.mark.parametrize(
    "widest, length, wanted", [(3, 128, 8), (8, 128, 8), (9, 128, 16), (125, 128, 128), (97, 100, 100), (101, 100, 104)]
)
def test_rows_are_padded_to_multiples_of_eight_and_to_the_length(widest: int, length: int, wanted: int) -> None:
    """Positions of a model for rows of 100 end there; what is longer (`long: none`) is the model's to refuse."""
    rows = [FeatureRow([5] * n, [0] * n) for n in (2, widest)]
    batch = pad_features([Feature((row,), 0) for row in rows], 0, length)
    assert batch.ids.shape == (2, wanted)
    assert batch.real is not None
    assert batch.real.sum(1).tolist() == [2, widest]
