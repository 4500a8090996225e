"""Every claim by its number: a file of `claims/` each, or the reason why there is none yet."""

import re
from collections.abc import Sequence
from importlib import import_module

from regard.errors import RegardError
from regard.lab.claim import Claim, PlannedClaim
from regard.lab.planned import PLANNED

MODULES = {  # by number, in claims/
    "C1": "cost_of_a_layer", "C2": "crossing", "C3": "paths", "C4": "saturation", "C6": "order", "C7": "linear_shift",
    "C8": "longer_than_trained", "C9": "averaging", "C11": "separate_projections", "C12": "residuals", "C13": "norms",
    "C14": "embedding_scale", "C15": "future_mask", "C16": "memory", "C21": "heads_and_time", "C24": "two_items",
}  # fmt: skip


def claim_ids() -> list[str]:
    return sorted([*MODULES, *PLANNED], key=lambda name: int(name[1:]))


def find_claim(name: str) -> Claim | PlannedClaim:
    """A claim by its number, as C4."""
    number = name.upper()
    if number in PLANNED:
        return PLANNED[number]
    if number not in MODULES:
        known = claim_ids()
        raise RegardError(f"there is no claim {name}; there are {known[0]} to {known[-1]}, see `regard lab list`")
    claim: Claim = import_module(f"regard.lab.claims.{MODULES[number]}").CLAIM
    return claim


def chosen_claims(names: Sequence[str]) -> list[Claim]:
    """Those of these numbers, or of `all`; a sentence for one that has no experiment yet."""
    if not names:
        raise RegardError("say which claims, as `regard lab run C4 C7`, or `regard lab run all`")
    if "all" in names:
        return [claim for name in claim_ids() if isinstance(claim := find_claim(name), Claim)]
    claims = []
    for name in dict.fromkeys(re.split(r"[ ,]+", " ".join(names).strip())):
        claim = find_claim(name)
        if isinstance(claim, PlannedClaim):
            raise RegardError(f"{claim.id} has no experiment yet: {claim.reason}")
        claims.append(claim)
    return claims
