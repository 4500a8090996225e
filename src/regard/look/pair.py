"""Two texts through one model, beside each other (minimal pairs): which weights moved, by head."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from regard.errors import RegardError
from regard.look.attention import LookResult, ShownResult, look
from regard.look.quantize import Json, weight_array

Aligned = list[tuple[int, int]]  # positions of the two texts that stand for each other


class LookPair(ShownResult):
    """What `look_pair` gives: `looks`, the two results of `look`, and `moved`."""


def look_pair(
    predictor: Any,
    text: str,
    other: str,
    target: str | None = None,
    ablate: Sequence[str] = (),
    *,
    trees: Sequence[Sequence[int]] | None = None,
) -> LookPair:
    """Two texts that differ little, and which attention weights of the words that both share moved most."""
    if trees is not None and len(trees) != 2:
        raise RegardError(f"two texts, but heads for {len(trees)}; give a list for each")
    looks = [
        look(predictor, each, target, ablate, trees=None if trees is None else [trees[n]])
        for n, each in enumerate((text, other))
    ]
    joined = " | ".join(each["text"] for each in looks)
    return LookPair(version=1, model=looks[0]["model"], text=joined, looks=looks, moved=moved(*looks))


def moved(first: LookResult, second: LookResult) -> Json:
    """`places`: which queries and keys of the two stand for each other; `heads`: the weight of each head that moved
    most, and by how much all of them did, the largest first. Layers and heads count from 1.

    A query counts where the model reads the same token there in both texts: a word that was exchanged asks something
    else, so that its weights move in any model.
    """
    places, heads = [], []
    for a, b in zip(first["places"], second["places"], strict=True):
        queries, keys = match_tokens(_read(first, a), _read(second, b)), match_tokens(a["keys"], b["keys"])
        places.append({"name": a["name"], "queries": queries, "keys": keys})
        same = [(i, j) for i, j in queries if _read(first, a)[i] == _read(second, b)[j]]
        heads += _moved_heads(a, b, same, keys)
    heads.sort(key=lambda head: -abs(head["weights"][1] - head["weights"][0]))
    return {"places": places, "heads": heads}


def match_tokens(first: Sequence[str], second: Sequence[str]) -> Aligned:
    """Equal tokens, in order; tokens that were exchanged for as many others stand for them."""
    pairs: Aligned = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and i_end - i == j_end - j):
            pairs += zip(range(i, i_end), range(j, j_end), strict=True)
    return pairs


def _read(result: LookResult, place: Json) -> list[str]:
    """The tokens at which queries stand: a cross-attention's queries are named by what is predicted there."""
    decoder = next((each for each in result["places"] if each["name"] == "decoder"), place)
    return list((decoder if place["name"] == "cross" else place)["queries"])


def _moved_heads(a: Json, b: Json, queries: Aligned, keys: Aligned) -> list[Json]:
    if not queries or not keys:
        return []
    (rows_a, rows_b), (columns_a, columns_b) = (np.array(list(zip(*each, strict=True))) for each in (queries, keys))
    before, after = (
        np.nan_to_num(weight_array(place["weights"]))[:, :, rows[:, None], columns]  # [L, H, queries, keys]
        for place, rows, columns in ((a, rows_a, columns_a), (b, rows_b, columns_b))
    )
    change = np.abs(after - before)
    heads = []
    for layer, head in np.ndindex(*change.shape[:2]):
        i, j = np.unravel_index(change[layer, head].argmax(), change.shape[2:])
        weights = [round(float(each[layer, head, i, j]), 4) for each in (before, after)]
        heads.append(
            {
                "place": a["name"],
                "layer": layer + 1,
                "head": head + 1,
                "query": list(queries[i]),
                "key": list(keys[j]),
                "weights": weights,
                "moved": round(float(change[layer, head].sum(-1).mean() / 2), 4),  # of the whole, for each query
            }
        )
    return heads
