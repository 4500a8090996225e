"""Every claim is well formed; a planted fault turns its verdict; a planted false claim is refuted."""

import math
from pathlib import Path

import pytest
import torch

from regard.errors import RegardError
from regard.lab.claim import Claim, Measurement, PredictedRange, Setup, Verdict, judge, lower_bound
from regard.lab.claims.corpus.syntax import trees_of
from regard.lab.controls import CONTROLS
from regard.lab.corpus import REST, UNKNOWN
from regard.lab.registry import MODULES, chosen_claims, claim_ids, find_claim
from regard.lab.runner import measure_part
from regard.lab.text import TextRun, TextSetup

CLAIMS: list[Claim] = [find_claim(name) for name in MODULES]
FAST = ("C3", "C7", "C9", "C14", "C15")  # measured in a second or two


PARTLY = {  # of whose settings a fault touches but one
    "C1": "n, restricted", "C12": "trained, pre_norm", "C19": "cross", "C24": "gain",  # of two, a control fails too
}  # fmt: skip


def measured(claim: Claim, fault: str = "", seeds: int = 2) -> tuple[Verdict, dict[str, Verdict]]:
    """The claim's verdict, and that of every prediction."""
    parts = [measure_part(claim.id, seed, Setup(fault=fault)) for seed in range(1, seeds + 1)]
    found, judged = judge(claim, [Measurement(part["numbers"], part["curves"]) for part in parts])
    return found, {each.prediction.quantity: each.verdict for each in judged}


def test_all_claims_are_listed() -> None:
    assert claim_ids() == [f"C{n}" for n in range(1, 30)]


@pytest.mark.parametrize("claim", [each for each in CLAIMS if each.kind == "screen"], ids=lambda claim: claim.id)
def test_a_screen_has_an_experiment_on_text_or_says_why_not(claim: Claim) -> None:
    assert bool(claim.on_text) != bool(claim.why_not_on_text)


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
    assert measured(find_claim(name))[0] == "confirmed"


def test_a_false_claim_is_refuted() -> None:
    """Unscaled products have unit variance: they have not."""

    def measure(seed: int, setup: Setup) -> Measurement:
        generator = torch.Generator().manual_seed(seed)
        q, k = torch.randn(2, 4000, 64, generator=generator)
        return Measurement({"variance": float((q * k).sum(-1).var())})

    false = Claim(
        "", "unscaled products have unit variance", "nowhere",
        [PredictedRange("variance", "variance of q·k at d_k = 64", 0.9, 1.1)], measure, 0.1, "",
    )  # fmt: skip
    found, judged = judge(false, [measure(seed, Setup()) for seed in range(3)])
    assert found == "refuted"
    assert judged[0].interval.mean == pytest.approx(64, rel=0.1)


def test_opposite_settings_depend() -> None:
    predictions = [PredictedRange("a", "", 1, 2, "here"), PredictedRange("b", "", 1, 2, "there")]

    def with_values(a: float, b: float) -> Verdict:
        claim = Claim("", "", "", predictions, lambda seed, setup: Measurement({}), 0, "")
        return judge(claim, [Measurement({"a": a, "b": b})] * 2)[0]

    assert with_values(1.5, 1.5) == "confirmed"
    assert with_values(3, 3) == "refuted"
    assert with_values(1.5, 3) == "depends"


def test_where_a_control_fails_nothing_follows() -> None:
    predictions = [lower_bound("gain", "", 1), lower_bound("learned", "", 0.9, control=True)]

    def with_values(gain: float, learned: float) -> Verdict:
        claim = Claim("", "", "", predictions, lambda seed, setup: Measurement({}), 0, "")
        return judge(claim, [Measurement({"gain": gain, "learned": learned})] * 2)[0]

    assert with_values(2, 1) == "confirmed"
    assert with_values(0, 1) == "refuted"
    assert with_values(0, 0.5) == "undecided"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_settings_are_predicted_alike(claim: Claim) -> None:
    """Assertions of different things are no settings, on which a claim could be said to depend."""
    if claim.id in ("C1", "C12"):  # the same thing counted and timed; gradients, and what they are to explain
        return
    ranges: dict[str, set[tuple[float, float]]] = {}
    for each in claim.predictions:
        ranges.setdefault(each.setting, set()).add((each.low, each.high))
    assert set.intersection(*ranges.values()) or claim.id == "C21"  # there products are counted beside


def test_trees_of_a_file(tmp_path: Path) -> None:
    """Four fifths are learned from, a tenth chooses and a tenth measures; words that stand once are unknown."""
    path = tmp_path / "own.conllu"
    rows = [("The", 2), ("dog", 3), ("barks", 0)]
    sentence = "".join(f"{n}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for n, (word, head) in enumerate(rows, 1))
    path.write_text("\n".join([sentence.replace("dog", "cat"), *[sentence] * 59]))
    bank = trees_of(path)
    assert (len(bank.train), len(bank.valid.ids), len(bank.test.ids)) == (48, 6, 6)
    assert bank.train[0].tolist()[1] == UNKNOWN  # cat
    assert bank.words == REST + 3
    assert bank.test.parents[0].tolist() == [1, 2, -1]
    path.write_text("\n".join([sentence] * 9))
    with pytest.raises(RegardError, match=r"own.conllu: 9 sentences of at most 60 words; 50 are needed"):
        trees_of(path)


ON_TEXT = [claim for claim in CLAIMS if claim.on_text]


@pytest.mark.parametrize("claim", ON_TEXT, ids=lambda claim: claim.id)
def test_experiments_on_text_can_be_run(claim: Claim, tmp_path: Path) -> None:
    """Their arms are recipes, their metric compares them, and their predictions are of numbers that there will be."""
    run = TextRun(claim, tmp_path, TextSetup())
    run.check()
    assert run.experiment.control in CONTROLS
    assert run.planned()[2] <= 5 * 60


def test_all_of_them_take_less_than_ninety_minutes(tmp_path: Path) -> None:
    assert sum(TextRun(claim, tmp_path, TextSetup()).planned()[2] for claim in ON_TEXT) <= 90 * 60


def test_one_seed_gives_no_verdict() -> None:
    claim = Claim("", "", "", [PredictedRange("a", "", 1, 2)], lambda seed, setup: Measurement({}), 0, "")
    assert judge(claim, [Measurement({"a": 1.5})])[0] == "undecided"


def test_wrong_numbers_are_one_sentence() -> None:
    with pytest.raises(RegardError, match="there is no claim C99; there are C1 to C29"):
        chosen_claims(["C99"])
    assert [claim.id for claim in chosen_claims(["c4,C7", "C4"])] == ["C4", "C7"]
    with pytest.raises(RegardError, match="say which claims"):
        chosen_claims([])
