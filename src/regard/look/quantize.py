"""Tensors as base64 of 16-bit integers, the low byte first. `page/look.js` reads the same."""

import base64
from typing import Any

import numpy as np
from torch import Tensor

from regard.reporting import Json

FIRST = 8  # numbers of a token's vector that are shown
HIDDEN, ONE = 65535, 65534  # of weights: a masked key, and the weight 1


def pack_weights(weights: Tensor, hidden: Tensor | None = None) -> Json:
    """Numbers from 0 to 1, as n/65534: right to 8 millionths. 65535 is a masked key."""
    whole = np.rint(weights.cpu().double().clamp(0, 1).numpy() * ONE)
    if hidden is not None:
        whole[hidden.cpu().numpy()] = HIDDEN
    return {"shape": list(whole.shape), "data": _text(whole.astype("<u2"))}


def pack_vectors(vectors: Tensor) -> Json:
    """Any numbers [H, …], as n · step of their head: right to 1/65534 of the largest there."""
    numbers = vectors.cpu().double().numpy()
    largest = np.abs(numbers).reshape(len(numbers), -1).max(1, initial=0.0)
    steps = np.where(largest > 0, largest / 32767, 1.0)
    whole = np.rint(numbers / steps.reshape(-1, *[1] * (numbers.ndim - 1)))
    return {"shape": list(whole.shape), "steps": steps.tolist(), "data": _text(whole.astype("<i2"))}


def rounded(numbers: Tensor) -> Any:
    """Few numbers, as nested lists with six digits."""
    return np.round(numbers.cpu().double().numpy(), 6).tolist()


def weight_array(data: Json) -> np.ndarray:
    """The weights of `pack_weights`; NaN where a key is masked."""
    whole = np.frombuffer(base64.b64decode(data["data"]), "<u2").reshape(data["shape"])
    return np.where(whole == HIDDEN, np.nan, whole / ONE)


def unpack_weights(data: Json) -> Any:
    """The same as nested lists of numbers with 4 digits; None where a key is masked."""
    numbers = np.round(weight_array(data), 4)
    return np.where(np.isnan(numbers), None, numbers).tolist()  # type: ignore[call-overload]


def _text(whole: np.ndarray) -> str:
    return base64.b64encode(whole.tobytes()).decode("ascii")
