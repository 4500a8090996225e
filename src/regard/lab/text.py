"""`--budget full`: claims on real text. Arms of a recipe on paired seeds (`compare.py`), judged like any measurement.

A claim is a folder: what is pretrained, and the comparison. The same command goes on, and `--minutes` ends it in parts.
"""

import contextlib
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.errors import RegardError, plural
from regard.io.files import DamagedFile, os_errors_for, read_json
from regard.lab.arms import Arm, check_arms, check_metric
from regard.lab.claim import Claim, Figure, Measurement, Points, TextExperiment, judge
from regard.lab.compare import REPORT, ArmResult, CompareOptions, compare_arms
from regard.lab.runner import ClaimResult, Say
from regard.lab.trainings import Outcome, OutOfTime, Training, TrainingPool
from regard.recipe import Recipe, load_recipe
from regard.reporting import Json

JOBS = 10  # trainings side by side on a GPU
COMMON = {  # of the recipes that experiments are built on: short, and measured once
    "multi30k-en-de": ("training.steps=1500", "training.schedule.warmup=200", "training.checkpoints={every: 500, keep: "
                       "1, average: 0}"),
}  # fmt: skip
CURVES = (Figure("loss", "training loss", "step", ""),)


@dataclass(frozen=True)
class TextSetup:
    """How experiments on text are run; `overrides` of every recipe are for trials, which give no verdict."""

    device: str = "auto"
    jobs: int = JOBS
    overrides: tuple[str, ...] = ()
    deadline: float | None = None

    def folder(self, out: Path, claim: Claim) -> Path:
        digest = hashlib.sha256("\n".join(self.overrides).encode()).hexdigest()[:8]
        return out / (f"trial-{digest}" if self.overrides else "full") / claim.id


def text_claims(claims: Sequence[Claim], every: bool) -> list[Claim]:
    """Those with an experiment on text; a sentence for one that has none, unless all are asked for."""
    for claim in claims:
        if claim.on_text is None and not every:
            reason = claim.why_not_on_text or "its verdict is computed, by --budget quick"
            raise RegardError(f"{claim.id} has no experiment on text: {reason}")
    return [claim for claim in claims if claim.on_text is not None]


def arms_of(experiment: TextExperiment, folder: Path) -> list[Arm]:
    """Its arms; what was pretrained is named by the seed's own run folder."""
    arms = []
    for name, overrides in experiment.arms.items():
        own = []
        for text in overrides:
            key, value = text.split("=", 1)
            place = f"{folder.absolute() / 'pretrained' / value[1:]}-{{seed}}" if value.startswith("@") else value
            own.append(f"{key}={place}")
        arms.append(Arm(name, tuple(own)))
    return arms


def common_overrides(experiment: TextExperiment, setup: TextSetup) -> list[str]:
    return [*COMMON.get(experiment.base, ()), *experiment.common, *setup.overrides]


def check_experiment(claim: Claim, setup: TextSetup, out: Path) -> None:
    """Its arms are recipes, its metric is theirs, and its predictions are of numbers that there will be."""
    experiment = claim.on_text
    assert experiment is not None
    arms, common = arms_of(experiment, setup.folder(out, claim)), common_overrides(experiment, setup)
    check_metric(check_arms(experiment.base, arms, common), experiment.metric)
    numbers = seed_numbers(experiment, dict.fromkeys(experiment.arms, 0.0))
    if unknown := [p.quantity for p in experiment.predictions if p.quantity not in numbers]:
        raise RegardError(f"{claim.id}: {unknown[0]!r} is no arm, no difference of two, and no sum of its experiment")
    for name in experiment.pretrained:
        pretraining_recipe(experiment, name, 1, setup)


def pretraining_recipe(experiment: TextExperiment, name: str, seed: int, setup: TextSetup) -> Recipe:
    base, *overrides = experiment.pretrained[name]
    return replace(load_recipe(base, [*overrides, *setup.overrides]), seed=seed)


def seed_numbers(experiment: TextExperiment, values: Mapping[str, float]) -> dict[str, float]:
    """The arms' metric on one seed, all differences of two arms, and the sums that the experiment names."""
    numbers = dict(values)
    numbers |= {f"{a} less {b}": values[a] - values[b] for a in values for b in values if a != b}
    sums = {name: {arm: values.get(arm, math.nan) * w for arm, w in weights.items()}
            for name, weights in experiment.sums.items()}  # fmt: skip
    return numbers | {name: math.fsum(parts.values()) for name, parts in sums.items()}


# --- running -------------------------------------------------------------------------------------------------------


def run_text_claims(
    claims: Sequence[Claim], out: Path, setup: TextSetup, say: Say, seeds: int | None = None
) -> tuple[list[ClaimResult], bool]:
    """Train and judge, claim by claim; and whether everything is done, or the time was over before."""
    for claim in claims:
        check_experiment(claim, setup, out)
    results = []
    for claim in claims:
        result = ClaimResult(as_text_claim(claim))
        results.append(result)
        try:
            _run_text_claim(claim, result, out, setup, say, seeds)
        except OutOfTime:
            say(f"{claim.id}: the time is over; the same command goes on")
            return results[:-1], False
        except RegardError as error:
            result.error = str(error)
        say(f"{claim.id} {result.outcome if not result.error else f'failed: {result.error}'}")
    return results, True


def _run_text_claim(
    claim: Claim, result: ClaimResult, out: Path, setup: TextSetup, say: Say, seeds: int | None
) -> None:
    experiment, folder = claim.on_text, setup.folder(out, claim)
    assert experiment is not None
    count, arms = seeds or experiment.seeds, arms_of(experiment, folder)
    while True:
        _pretrain(experiment, folder, count, setup, say)
        options = CompareOptions(
            count, control=experiment.control, metric=experiment.metric, jobs=setup.jobs, device=setup.device,
            deadline=setup.deadline,
        )  # fmt: skip
        common = common_overrides(experiment, setup)
        comparison = compare_arms(experiment.base, arms, folder / "arms", options, common, say)
        judge_arms(experiment, comparison.arms, result)
        straddles = any(each.verdict == "undecided" for each in result.judged)
        if not straddles or seeds or result.error or count >= experiment.most_seeds:
            return
        count += 1


def _pretrain(experiment: TextExperiment, folder: Path, seeds: int, setup: TextSetup, say: Say) -> None:
    """Every model that arms begin with, on every seed; what is there is not trained again."""
    trainings = [
        Training(pretraining_recipe(experiment, name, seed, setup), folder / "pretrained" / f"{name}-{seed}")
        for name in experiment.pretrained
        for seed in range(1, seeds + 1)
    ]
    if not trainings:
        return

    def show(outcome: Outcome) -> None:
        if outcome.seconds:
            say(f"pretrained {outcome.training.run.name}: {outcome.error or f'{outcome.seconds:.0f} s'}")

    with os_errors_for(folder, "written"):
        (folder / "recipes").mkdir(parents=True, exist_ok=True)
    outcomes = TrainingPool(setup.jobs, setup.device, folder / "recipes", setup.deadline).run(trainings, show)
    if broken := [outcome for outcome in outcomes if outcome.error]:
        raise RegardError(f"{broken[0].training.run}: {broken[0].error}")


def as_text_claim(claim: Claim) -> Claim:
    """The claim with the predictions of its experiment on text."""
    experiment = claim.on_text
    assert experiment is not None
    depends = (
        f"{experiment.base} with {plural(len(experiment.arms), 'arm')}, {experiment.metric or 'loss'} on its "
        f"validation text; as much of: {experiment.control}. One corpus and one size of model: other ones may differ."
    )
    text = replace(claim, kind="text", predictions=experiment.predictions, depends_on=depends, figures=CURVES)
    return replace(text, faults={}, seeds=experiment.seeds, most_seeds=experiment.most_seeds)


def judge_arms(experiment: TextExperiment, arms: Sequence[ArmResult], result: ClaimResult) -> None:
    """Seeds that all arms have, as measurements."""
    rows = {row.arm.name: row for row in arms}
    seeds = sorted(set.intersection(*(set(row.values) for row in rows.values())))
    result.measurements = []
    for seed in seeds:
        curves: dict[str, Points] = {
            name: [(float(step), loss) for step, loss in row.curves.get(seed, [])] for name, row in rows.items()
        }
        numbers = seed_numbers(experiment, {name: row.values[seed] for name, row in rows.items()})
        result.measurements.append(Measurement(numbers, {"loss": curves}))
    result.seconds = math.fsum(second for row in rows.values() for second in row.seconds)
    if len(seeds) < 2:
        errors = [sentence for row in rows.values() for sentence in row.errors.values()]
        result.error = errors[0] if errors else "fewer than two seeds have all arms"
        return
    result.verdict, result.judged = judge(result.claim, result.measurements)


# --- what there is -------------------------------------------------------------------------------------------------


def measured_text_results(claims: Sequence[Claim], out: Path) -> list[ClaimResult]:
    """The claims whose comparison on text is finished in this folder, judged; nothing is trained."""
    results = []
    for claim in claims:
        report = TextSetup().folder(out, claim) / "arms" / REPORT
        if claim.on_text is None or not report.exists():
            continue
        result = ClaimResult(as_text_claim(claim))
        with contextlib.suppress(DamagedFile):
            judge_arms(claim.on_text, [_arm_result(row) for row in read_json(report)["arms"]], result)
        if result.verdict is not None:
            results.append(result)
    return results


def _arm_result(row: Json) -> ArmResult:
    """What `compare.json` says of an arm."""
    values = {int(seed): float(value) for seed, value in row["values"].items()}
    curves = {int(seed): [(int(step), float(loss)) for step, loss in points] for seed, points in row["curves"].items()}
    return ArmResult(Arm(row["arm"], tuple(row["overrides"])), values, seconds=list(row["seconds"]), curves=curves)


def planned_runs(claim: Claim, setup: TextSetup, out: Path) -> tuple[int, int, float]:
    """How many trainings an experiment has, how many are finished, and the seconds that the others take."""
    experiment = claim.on_text
    assert experiment is not None
    folder = setup.folder(out, claim)
    runs = experiment.seeds * (len(experiment.arms) + len(experiment.pretrained))
    done = sum(1 for _ in folder.glob("*/*/seed-*/results.json")) + sum(
        1 for _ in folder.glob("pretrained/*/results.json")
    )
    left = max(0, runs - done)
    return runs, min(done, runs), left * experiment.seconds / max(1, setup.jobs)


def end_time(minutes: float | None) -> float | None:
    if minutes is None:
        return None
    if minutes <= 0:
        raise RegardError(f"--minutes is {minutes:g}; 9 is usual")
    return time.monotonic() + 60 * minutes
