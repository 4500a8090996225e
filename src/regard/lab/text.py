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
from regard.io.files import DamagedFile, read_json
from regard.lab.arms import Arm, check_arms, check_metric
from regard.lab.claim import Claim, Figure, Measurement, Points, TextExperiment
from regard.lab.compare import REPORT, ArmResult, CompareOptions, compare_arms
from regard.lab.runner import ClaimResult, Say
from regard.lab.trainings import Outcome, OutOfTime, Training, TrainingPool
from regard.recipe import load_recipe
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


def text_claims(claims: Sequence[Claim], every: bool) -> list[Claim]:
    """Those with an experiment on text; a sentence for one that has none, unless all are asked for."""
    for claim in claims:
        if claim.on_text is None and not every:
            reason = claim.why_not_on_text or "its verdict is computed, by --budget quick"
            raise RegardError(f"{claim.id} has no experiment on text: {reason}")
    return [claim for claim in claims if claim.on_text is not None]


def seed_numbers(experiment: TextExperiment, values: Mapping[str, float]) -> dict[str, float]:
    """The arms' metric on one seed, all differences of two arms, and the sums that the experiment names."""
    numbers = dict(values)
    numbers |= {f"{a} less {b}": values[a] - values[b] for a in values for b in values if a != b}
    for name, weights in experiment.sums.items():
        numbers[name] = math.fsum(values[arm] * weight for arm, weight in weights.items())
    return numbers


class TextRun:
    """The experiment on text of a claim, in its folder: what is pretrained, and the comparison."""

    def __init__(self, claim: Claim, out: Path, setup: TextSetup) -> None:
        assert claim.on_text is not None
        self.id, self.claim, self.experiment, self.setup = claim.id, as_text_claim(claim), claim.on_text, setup
        digest = hashlib.sha256("\n".join(setup.overrides).encode()).hexdigest()[:8]
        self.folder = out / (f"trial-{digest}" if setup.overrides else "full") / claim.id
        self.common = [*COMMON.get(self.experiment.base, ()), *self.experiment.common, *setup.overrides]

    def arms(self) -> list[Arm]:
        """With what was pretrained named by the seed's own run folder."""
        place = f"{self.folder.absolute() / 'pretrained'}/"
        return [
            Arm(name, tuple(f"{text.replace('=@', f'={place}')}-{{seed}}" if "=@" in text else text for text in own))
            for name, own in self.experiment.arms.items()
        ]

    def pretraining(self, name: str, seed: int) -> Training:
        base, *overrides = self.experiment.pretrained[name]
        recipe = replace(load_recipe(base, [*overrides, *self.setup.overrides]), seed=seed)
        return Training(recipe, self.folder / "pretrained" / f"{name}-{seed}")

    def check(self) -> None:
        """Its arms are recipes, its metric is theirs, and its predictions are of numbers that there will be."""
        experiment = self.experiment
        check_metric(check_arms(experiment.base, self.arms(), self.common), experiment.metric)
        numbers = seed_numbers(experiment, dict.fromkeys(experiment.arms, 0.0))
        if unknown := [p.quantity for p in experiment.predictions if p.quantity not in numbers]:
            raise RegardError(
                f"{self.id}: {unknown[0]!r} is no arm, no difference of two, and no sum of its experiment"
            )
        for name in experiment.pretrained:
            self.pretraining(name, 1)

    def planned(self) -> tuple[int, int, float]:
        """How many trainings there are, how many are finished, and the seconds that the others take, one group of
        `jobs` after the other."""
        seeds, left, finished = self.experiment.seeds[0], 0, 0
        for pattern, kinds in (("pretrained/*-*", self.experiment.pretrained), ("arms/*/seed-*", self.experiment.arms)):
            runs = seeds * len(kinds)
            done = min(runs, sum(1 for _ in self.folder.glob(f"{pattern}/results.json")))
            finished, left = finished + done, left + math.ceil((runs - done) / max(1, self.setup.jobs))
        count = seeds * (len(self.experiment.arms) + len(self.experiment.pretrained))
        return count, finished, left * self.experiment.seconds

    def run(self, say: Say, seeds: int | None = None) -> ClaimResult:
        """Train and judge; one more seed while a prediction is undecided."""
        experiment, setup = self.experiment, self.setup
        if setup.deadline is not None and time.monotonic() >= setup.deadline:
            raise OutOfTime("the time is over")  # before data are prepared, which takes time too
        for count in range(seeds or experiment.seeds[0], (seeds or experiment.seeds[1]) + 1):
            self._pretrain(count, say)
            options = CompareOptions(
                count, control=experiment.control, metric=experiment.metric, jobs=setup.jobs, device=setup.device,
                deadline=setup.deadline,
            )  # fmt: skip
            comparison = compare_arms(experiment.base, self.arms(), self.folder / "arms", options, self.common, say)
            result = self.judged(comparison.arms, comparison.hardware)
            if result.error or not result.straddles:
                break
        return result

    def _pretrain(self, seeds: int, say: Say) -> None:
        """Every model that arms begin with, on every seed; what is there is not trained again."""
        trainings = [
            self.pretraining(name, seed) for name in self.experiment.pretrained for seed in range(1, seeds + 1)
        ]
        if not trainings:
            return

        def show(outcome: Outcome) -> None:
            if outcome.seconds:
                say(f"pretrained {outcome.training.run.name}: {outcome.error or f'{outcome.seconds:.0f} s'}")

        setup = self.setup
        pool = TrainingPool(setup.jobs, setup.device, self.folder / "recipes", setup.deadline)
        outcomes = pool.run(trainings, show)
        if broken := [outcome for outcome in outcomes if outcome.error]:
            raise RegardError(f"{broken[0].training.run}: {broken[0].error}")

    def judged(self, arms: Sequence[ArmResult], hardware: str = "") -> ClaimResult:
        """The seeds that all arms have, as measurements."""
        result = ClaimResult(self.claim, hardware=hardware)
        rows = {row.arm.name: row for row in arms}
        for seed in sorted(set.intersection(*(set(row.values) for row in rows.values()))):
            curves: dict[str, Points] = {name: row.curves.get(seed, []) for name, row in rows.items()}
            numbers = seed_numbers(self.experiment, {name: row.values[seed] for name, row in rows.items()})
            result.measurements.append(Measurement(numbers, {"loss": curves}))
        result.seconds = math.fsum(second for row in rows.values() for second in row.seconds)
        if len(result.measurements) < 2:
            errors = [sentence for row in rows.values() for sentence in row.errors.values()]
            result.error = errors[0] if errors else "fewer than two seeds have all arms"
        else:
            result.judge()
        return result

    def measured(self) -> ClaimResult | None:
        """What the finished comparison of this folder says; nothing is trained."""
        if not (path := self.folder / "arms" / REPORT).exists():
            return None
        with contextlib.suppress(DamagedFile):
            report = read_json(path)
            return self.judged([_arm_result(row) for row in report["arms"]], report.get("hardware", ""))
        return None


def as_text_claim(claim: Claim) -> Claim:
    """The claim with the predictions of its experiment on text."""
    experiment = claim.on_text
    assert experiment is not None
    depends = (
        f"{experiment.base} with {plural(len(experiment.arms), 'arm')}, {experiment.metric or 'loss'} on its "
        f"validation text; as much of: {experiment.control}. One corpus and one size of model: other ones may differ."
    )
    text = replace(claim, kind="text", predictions=experiment.predictions, depends_on=depends, figures=CURVES)
    return replace(text, faults={}, seeds=experiment.seeds)


def run_text_claims(
    claims: Sequence[Claim], out: Path, setup: TextSetup, say: Say, seeds: int | None = None
) -> tuple[list[ClaimResult], bool]:
    """Train and judge, claim by claim; and whether everything is done, or the time was over before."""
    runs = [TextRun(claim, out, setup) for claim in claims]
    for run in runs:
        run.check()
    results: list[ClaimResult] = []
    for run in runs:
        try:
            result = run.run(say, seeds)
        except OutOfTime:
            say(f"{run.id}: the time is over; the same command goes on")
            return results, False
        except RegardError as error:
            result = ClaimResult(run.claim, error=str(error))
        results.append(result)
        say(f"{run.id} {result.outcome if not result.error else f'failed: {result.error}'}")
    return results, True


def measured_text_results(claims: Sequence[Claim], out: Path) -> list[ClaimResult]:
    """The claims whose comparison on text is finished in this folder, judged."""
    found = [TextRun(claim, out, TextSetup()).measured() for claim in claims if claim.on_text]
    return [result for result in found if result is not None and result.verdict is not None]


def _arm_result(row: Json) -> ArmResult:
    """What `compare.json` says of an arm."""
    values = {int(seed): float(value) for seed, value in row["values"].items()}
    curves = {int(seed): [(int(step), float(loss)) for step, loss in points] for seed, points in row["curves"].items()}
    return ArmResult(Arm(row["arm"], tuple(row["overrides"])), values, seconds=list(row["seconds"]), curves=curves)


def end_time(minutes: float | None) -> float | None:
    if minutes is None:
        return None
    if minutes <= 0:
        raise RegardError(f"--minutes is {minutes:g}; 9 is usual")
    return time.monotonic() + 60 * minutes
