"""Every claim by its number: a file of `claims/` each."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module

from regard.errors import RegardError
from regard.lab.claim import Claim

MODULES = {  # by number, in claims/
    "C1": "exact.cost_of_a_layer", "C2": "exact.crossing", "C3": "exact.paths", "C4": "exact.saturation",
    "C5": "screens.dot_and_additive", "C6": "exact.order", "C7": "exact.linear_shift",
    "C8": "screens.longer_than_trained", "C9": "exact.averaging", "C10": "screens.number_of_heads",
    "C11": "screens.separate_projections", "C12": "exact.residuals", "C13": "screens.norms",
    "C14": "exact.embedding_scale", "C15": "exact.future_mask", "C16": "screens.memory",
    "C17": "screens.sparse_evidence", "C18": "corpus.masking_kinds", "C19": "corpus.referents",
    "C20": "corpus.granularity", "C21": "exact.heads_and_time", "C22": "screens.learned_positions",
    "C23": "corpus.own_place", "C24": "screens.two_items", "C25": "corpus.both_directions", "C26": "corpus.syntax",
    "C27": "corpus.masked_or_next", "C28": "corpus.size_and_pretraining", "C29": "corpus.heads_by_place",
}  # fmt: skip


def claim_ids() -> list[str]:
    return list(MODULES)


def find_claim(name: str) -> Claim:
    """A claim by its number, as C4."""
    if name.upper() not in MODULES:
        known = claim_ids()
        raise RegardError(f"there is no claim {name}; there are {known[0]} to {known[-1]}, see `regard lab list`")
    return _claim(name.upper())


@cache
def _claim(number: str) -> Claim:
    module = MODULES[number]
    claim: Claim = import_module(f"regard.lab.claims.{module}").CLAIM
    return replace(claim, id=number, kind="exact" if module.startswith("exact.") else "screen")


def chosen_claims(names: Sequence[str]) -> list[Claim]:
    """Those of these numbers, or of `all`."""
    if not names:
        raise RegardError("say which claims, as `regard lab run C4 C7`, or `regard lab run all`")
    if "all" in names:
        return [find_claim(name) for name in claim_ids()]
    return [find_claim(name) for name in dict.fromkeys(re.split(r"[ ,]+", " ".join(names).upper().strip()))]
