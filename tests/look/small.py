"""Small models that nobody trained, and the walk's sums done again in numpy from a page's data."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard import recipe as recipes
from tests.training import toy

TEXT = "w1 w2 w3 w4 w5"


def opened(folder: Path, keys: dict[str, Any], noise: float = 0.3) -> Any:
    """What `regard.load` would give of this recipe before its first step, shaken so that weights are not all alike."""
    recipe = recipes.load_recipe(keys)
    task = recipe.task.prepare(recipe, None, lambda *told: None)
    task.save(folder / "made")
    torch.manual_seed(7)
    made = recipe.task.load_predictor(recipe, folder / "made")
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter += noise * torch.randn_like(parameter)
    made.model.eval()
    return made


def translator(folder: Path, model: dict[str, Any] | None = None) -> Any:
    toy.write_corpus(folder, train=40, valid=5)
    keys = toy.recipe(folder)
    keys["model"] = model or {"layers": 2, "size": 16, "inner": 16, "heads": 2}
    return opened(folder, keys)


def weights(found: dict[str, Any]) -> np.ndarray:
    """With NaN where a place is hidden."""
    whole = np.frombuffer(base64.b64decode(found["data"]), "<u2").reshape(found["shape"])
    return np.where(whole == 65535, np.nan, whole / 65534)


def vectors(found: dict[str, Any]) -> np.ndarray:
    whole = np.frombuffer(base64.b64decode(found["data"]), "<i2").reshape(found["shape"])
    return whole * np.array(found["steps"]).reshape(-1, *[1] * (whole.ndim - 1))


def walked(data: dict[str, Any], place: str, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [H, Q, K] and outputs [H, Q, d_v] of a layer, from the numbers of its walk alone."""
    step = data["walk"][place][layer]
    q, k, v = (vectors(step[name]) for name in "qkv")
    if "vector" in step["score"]:
        hidden = np.tanh(q[:, :, None] + k[:, None])  # [H, Q, K, size]
        scores = np.einsum("hqks,hs->hqk", hidden, vectors(step["score"]["vector"]))
    else:
        scores = step["score"]["scale"] * np.einsum("hqd,hkd->hqk", q, k)
    if "bias" in step:
        scores = scores + vectors(step["bias"])
    seen = next(each for each in data["places"] if each["name"] == place)
    scores = np.where(np.isnan(weights(seen["weights"])[layer]), -np.inf, scores)
    found = NORMALISERS[step["normalise"]["kind"]](scores)
    if "gain" in step:
        found = found * vectors(step["gain"])
    return found, found @ v + (vectors(step["mixed"]) if "mixed" in step else 0)


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def _entmax(alpha: float) -> Any:
    def of(scores: np.ndarray) -> np.ndarray:
        z = (scores - scores.max(-1, keepdims=True)) * (alpha - 1)
        low, high = np.full((*z.shape[:-1], 1), -1.0), np.zeros((*z.shape[:-1], 1))
        for _ in range(60):
            middle = (low + high) / 2
            large = (np.maximum(z - middle, 0) ** (1 / (alpha - 1))).sum(-1, keepdims=True) >= 1
            low, high = np.where(large, middle, low), np.where(large, high, middle)
        return np.maximum(z - low, 0) ** (1 / (alpha - 1))

    return of


NORMALISERS = {
    "softmax": _softmax,
    "hard": lambda scores: np.eye(scores.shape[-1])[scores.argmax(-1)],
    "sparsemax": _entmax(2.0),
    "entmax": _entmax(1.5),
}
