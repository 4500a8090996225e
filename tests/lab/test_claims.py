"""Every claim is well formed; a planted fault turns its verdict; a planted false claim is refuted."""

import math
import shlex

import pytest
import torch
import typer

from regard.cli.main import app
from regard.errors import RegardError
from regard.lab.arms import check_arms, check_metric, grid
from regard.lab.claim import Claim, Measurement, PlannedClaim, PredictedRange, Setup, Verdict, judge
from regard.lab.controls import CONTROLS
from regard.lab.planned import PLANNED
from regard.lab.registry import MODULES, chosen_claims, claim_ids, find_claim
from regard.lab.runner import measure_part

CLAIMS: list[Claim] = [claim for name in MODULES if isinstance(claim := find_claim(name), Claim)]
FAST = ("C3", "C7", "C9", "C14", "C15")  # measured in a second or two


PARTLY = {"C1": "n, restricted", "C12": "trained, pre_norm"}  # of whose settings a fault touches but one


def measured(claim: Claim, fault: str = "", seeds: int = 2) -> tuple[Verdict, dict[str, Verdict]]:
    """The claim's verdict, and that of every prediction."""
    parts = [measure_part(claim.id, seed, Setup(fault=fault)) for seed in range(1, seeds + 1)]
    found, judged = judge(claim, [Measurement(part["numbers"], part["curves"]) for part in parts])
    return found, {each.prediction.quantity: each.verdict for each in judged}


def test_all_claims_are_listed() -> None:
    assert claim_ids() == [f"C{n}" for n in range(1, 30)]
    assert not set(MODULES) & set(PLANNED)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claims_say_what_a_reader_needs(claim: Claim) -> None:
    assert claim.id == next(name for name in MODULES if find_claim(name) is claim)
    assert claim.sentence
    assert claim.source
    assert claim.depends_on
    assert claim.faults, "a fault that must turn the verdict"
    assert claim.kind != "screen" or len(claim.predictions) > 0
    for prediction in claim.predictions:
        assert prediction.low <= prediction.high
        assert math.isfinite(prediction.low) or math.isfinite(prediction.high)


def is_fast(claim: Claim, fault: str) -> bool:
    return claim.id in FAST or fault == "d_k instead of √d_k"


FAULTS = [(claim, fault) for claim in CLAIMS for fault in claim.faults]


@pytest.mark.parametrize(
    "claim, fault",
    [
        pytest.param(claim, fault, id=f"{claim.id}: {fault}", marks=() if is_fast(claim, fault) else pytest.mark.slow)
        for claim, fault in FAULTS
    ],
)
@pytest.mark.timeout(1200)  # on a busy machine
def test_a_planted_fault_turns_the_verdict(claim: Claim, fault: str) -> None:
    found, predictions = measured(claim, fault, 2 if is_fast(claim, fault) else 4)
    assert (predictions[PARTLY[claim.id]] if claim.id in PARTLY else found) == "refuted", predictions


@pytest.mark.parametrize("name", ["C3", "C7", "C14"])
def test_without_the_fault_they_stand(name: str) -> None:
    claim = find_claim(name)
    assert isinstance(claim, Claim)
    assert measured(claim)[0] == "confirmed"


def test_a_false_claim_is_refuted() -> None:
    """Unscaled products have unit variance: they have not."""

    def measure(seed: int, setup: Setup) -> Measurement:
        generator = torch.Generator().manual_seed(seed)
        q, k = torch.randn(2, 4000, 64, generator=generator)
        return Measurement({"variance": float((q * k).sum(-1).var())})

    false = Claim(
        "X1", "", "unscaled products have unit variance", "nowhere", "exact",
        [PredictedRange("variance", "variance of q·k at d_k = 64", 0.9, 1.1)], measure, 0.1, "",
    )  # fmt: skip
    found, judged = judge(false, [measure(seed, Setup()) for seed in range(3)])
    assert found == "refuted"
    assert judged[0].interval.mean == pytest.approx(64, rel=0.1)


def test_opposite_settings_depend() -> None:
    predictions = [PredictedRange("a", "", 1, 2, "here"), PredictedRange("b", "", 1, 2, "there")]

    def with_values(a: float, b: float) -> Verdict:
        claim = Claim("X2", "", "", "", "exact", predictions, lambda seed, setup: Measurement({}), 0, "")
        return judge(claim, [Measurement({"a": a, "b": b})] * 2)[0]

    assert with_values(1.5, 1.5) == "confirmed"
    assert with_values(3, 3) == "refuted"
    assert with_values(1.5, 3) == "depends"


COMMANDS = [(name, command) for name in claim_ids() for command in find_claim(name).on_text]


@pytest.mark.parametrize("name, command", COMMANDS, ids=[f"{name} {n}" for n, (name, _) in enumerate(COMMANDS)])
def test_commands_on_text_can_be_typed(name: str, command: str) -> None:
    """Their arms are recipes, and their metric compares them."""
    context = typer.main.get_command(app).commands["compare"].make_context("compare", shlex.split(command)[2:])  # type: ignore[attr-defined]
    given = context.params
    check_metric(check_arms(given["recipe"], grid(given["vary"]), given["overrides"] or []), given["metric"])
    assert given["control"] in CONTROLS


def test_one_seed_gives_no_verdict() -> None:
    claim = Claim(
        "X3", "", "", "", "exact", [PredictedRange("a", "", 1, 2)], lambda seed, setup: Measurement({}), 0, ""
    )
    assert judge(claim, [Measurement({"a": 1.5})])[0] == "undecided"


def test_wrong_numbers_are_one_sentence() -> None:
    with pytest.raises(RegardError, match="there is no claim C99; there are C1 to C29"):
        chosen_claims(["C99"])
    planned = next(iter(PLANNED.values()))
    assert isinstance(find_claim(planned.id.lower()), PlannedClaim)
    with pytest.raises(RegardError, match=f"{planned.id} has no experiment yet: "):
        chosen_claims([planned.id])
    with pytest.raises(RegardError, match="say which claims"):
        chosen_claims([])
