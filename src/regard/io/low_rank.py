"""Weights stored as a change of another model's: a fine-tuned model as a small folder beside the model it began with.

    w = base + leftᵀ · right, of rank r: the best such approximation, by the SVD of w − base (Eckart and Young 1936)

A matrix `name` that changed becomes `name.left` [r, R] and `name.right` [r, C]. Stored whole is what has one dimension,
and what the base lacks; what did not change, and embeddings of words, are the base's. `base.json` names the base and
the sha256 of its weights. Knows no model.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.io.files import DamagedFile, read_json, shown, write_json
from regard.io.manifest import file_sha256
from regard.io.models import known_models
from regard.io.run_folder import BASE, WEIGHTS
from regard.io.tensors import read_sharded, read_tensors

LEFT, RIGHT = ".left", ".right"
LARGEST = 4  # times as many rows as columns: such a table of words changes in few of them
TABLE = re.compile(r"(^|[._])embedding\.weight$")  # of words, of which few change


def to_low_rank(weights: Mapping[str, Tensor], base: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """What is stored of a model that began with the base."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        there = base.get(name)
        if there is None or there.shape != weight.shape or weight.dim() != 2:
            if there is None or there.shape != weight.shape or not torch.equal(there, weight):
                stored[name] = weight
            continue
        change = (weight - there).double()
        table = TABLE.search(name) and weight.shape[0] > LARGEST * weight.shape[1]
        if table or not bool(change.any()):
            continue
        left, sizes, right = torch.linalg.svd(change, full_matrices=False)  # [R, K], [K], [K, C]
        root = sizes[:rank].sqrt()
        stored[name + LEFT] = (left[:, :rank] * root).T.float()  # [r, R]
        stored[name + RIGHT] = (root[:, None] * right[:rank]).float()  # [r, C]
    return stored


def from_low_rank(stored: Mapping[str, Tensor], base: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
    """The weights; of the base those that the stored ones do not name."""
    weights = dict(base)
    for name, tensor in stored.items():
        whole = name.removesuffix(LEFT).removesuffix(RIGHT)
        if whole == name or whole not in base:
            weights[name] = tensor
        elif name.endswith(LEFT):
            right = stored.get(whole + RIGHT)
            if right is None or base[whole].shape != (tensor.shape[-1], right.shape[-1]) or len(right) != len(tensor):
                raise RegardError(f"{origin}: {whole} is no change of its base's; export it anew")
            weights[whole] = base[whole] + tensor.T @ right
    return weights


def write_base(folder: Path, base: Path, weights: Mapping[str, Tensor]) -> None:
    """Names the base of these weights, and what of it they leave out, such as its head."""
    unused = sorted(set(read_tensors(base / WEIGHTS)) - set(weights))
    content = {"model": base.resolve().name, "sha256": file_sha256(base / WEIGHTS), "unused": unused}
    write_json(folder / BASE, content)


def base_of(folder: Path) -> Path | None:
    """The folder of the model that another is a change of: beside it, or by its name; None for a whole model."""
    if not (folder / BASE).is_file():
        return None
    name = Path(str(read_json(folder / BASE).get("model"))).name  # no path of somebody else's choice
    beside = folder.resolve().parent / name
    base = beside if (beside / WEIGHTS).is_file() else known_models().get(name)
    if base is None or not (base / WEIGHTS).is_file():
        raise RegardError(f"{folder}: a change of the model {shown(name)}, which is not beside it and not installed")
    return base


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a model's folder or of a checkpoint, whole, however they are stored."""
    tensors, place = read_sharded(folder, "model"), base_of(folder)
    if place is None:
        return tensors
    known = read_json(folder / BASE)
    if file_sha256(place / WEIGHTS) != known.get("sha256"):
        name = place.name
        raise RegardError(f"{folder}: a change of another {name} than {place}, by its sha256 in {BASE}; get that one")
    base = read_tensors(place / WEIGHTS)
    unused = known.get("unused", [])
    if not isinstance(unused, list) or not all(isinstance(name, str) for name in unused):
        raise DamagedFile(f"{folder / BASE}: damaged: `unused` is no list of names")
    for name in unused:
        base.pop(name, None)
    return from_low_rank(tensors, base, folder / WEIGHTS)
