"""`regard compare`: arms × paired seeds of one recipe, trained side by side, with paired differences and intervals.

Arms of a seed see the same batches in the same order, and begin with the same weights wherever names and shapes agree.
The first arm is what the others are compared with. Everything is in one folder, in which the same command goes on.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from regard import config
from regard.errors import RegardError, plural
from regard.io.atomic import atomic_write
from regard.io.files import json_safe, os_errors_for, read_json
from regard.io.lock import lock_folder
from regard.lab.arms import Arm, check_arms, check_metric
from regard.lab.controls import CONTROLS, controlled, tune_rates
from regard.lab.initial import write_initial_weights
from regard.lab.statistics import Interval, mean_interval, paired_interval
from regard.lab.trainings import Outcome, Training, TrainingPool, hardware
from regard.recipe import Recipe
from regard.reporting import Json

PLAN, REPORT = "plan.json", "compare.json"


@dataclass(frozen=True)
class CompareOptions:
    """What `regard compare` is asked for, besides the arms."""

    seeds: int = 5
    up_to: int = 0  # more seeds while a difference is undecided; 0: no more
    control: str = "steps"
    metric: str | None = None
    margin: float = 0.0  # the smallest difference that counts
    tune_rates: bool = False
    screen: bool = False  # one seed is enough: no interval and no verdict
    jobs: int = 1
    device: str = "auto"
    deadline: float | None = None  # of `time.monotonic`; by then what runs saves and ends

    def check(self) -> None:
        if self.seeds < 1:
            raise RegardError(f"--seeds is {self.seeds}; 5 is usual")
        if self.seeds == 1 and not self.screen:
            raise RegardError(
                "one seed gives no verdict: what differs may be chance; give --seeds 5, or --screen for a first look"
            )
        if self.control not in CONTROLS:
            raise RegardError(f"--control is {self.control!r}; {config.nearest(self.control, CONTROLS)}")
        if self.margin < 0:
            raise RegardError(f"--margin is {self.margin}; it is a size, so at least 0")
        if self.up_to and self.up_to < self.seeds:
            raise RegardError(f"--up-to is {self.up_to}, fewer than --seeds {self.seeds}")


@dataclass
class ArmResult:
    """An arm's metric by seed, or why a seed has none."""

    arm: Arm
    values: dict[int, float] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    parameters: int = 0
    steps: int = 0
    seconds: list[float] = field(default_factory=list)
    curves: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # by seed: step and training loss
    beside: dict[str, list[float]] = field(default_factory=dict)  # other metrics of the same weights, by seed

    def difference(self, base: "ArmResult") -> Interval | None:
        """Of this arm and the first, by seeds that both have."""
        seeds = [seed for seed in base.values if seed in self.values]
        return paired_interval([base.values[s] for s in seeds], [self.values[s] for s in seeds]) if seeds else None


@dataclass
class Comparison:
    base: str
    metric: str
    higher_is_better: bool
    options: CompareOptions
    arms: list[ArmResult]
    notes: list[str] = field(default_factory=list)
    hardware: str = ""

    def verdict(self, arm: ArmResult) -> str:
        """`better` or `worse` than the first arm by more than the margin, `as good`, or `undecided`."""
        difference = arm.difference(self.arms[0])
        if difference is None:
            return "failed"
        if self.options.screen or difference.count < 2:
            return "screen"
        margin, sign = self.options.margin, 1 if self.higher_is_better else -1
        low, high = sorted((sign * difference.low, sign * difference.high))
        if low > margin:
            return "better"
        if high < -margin:
            return "worse"
        return "as good" if margin and -margin <= low and high <= margin else "undecided"

    def json(self) -> Json:
        first = self.arms[0]
        rows = []
        for each in self.arms:
            row: Json = {"arm": each.arm.name, "overrides": list(each.arm.overrides), "values": each.values}
            row |= {"errors": each.errors, "parameters": each.parameters, "steps": each.steps}
            row |= {"seconds": each.seconds, "curves": each.curves, "beside": each.beside}
            if each.values:
                row["mean"] = mean_interval(list(each.values.values())).json()
            if each is not first and (difference := each.difference(first)):
                row |= {"difference": difference.json(), "verdict": self.verdict(each)}
            rows.append(row)
        settings = {"control": self.options.control, "margin": self.options.margin, "screen": self.options.screen}
        head = {"base": self.base, "metric": self.metric, "higher_is_better": self.higher_is_better}
        return head | settings | {"notes": self.notes, "hardware": self.hardware, "arms": rows}


def compare_arms(
    base: str,
    arms: Sequence[Arm],
    out: Path,
    options: CompareOptions,
    common: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> Comparison:
    """Train every arm on every seed in the folder `out`, and measure; what is there already is not trained again."""
    options.check()
    recipes = check_arms(base, arms, common)
    metric, higher = check_metric(recipes, options.metric)
    recipes = [measured_once(recipe) for recipe in recipes]
    rows = [ArmResult(arm) for arm in arms]
    comparison = Comparison(base, metric, higher, options, rows, hardware=hardware(options.device))
    with claim_folder(out):
        _check_same_plan(out, recipes, arms, options)
        pool = TrainingPool(options.jobs, options.device, out / "recipes", options.deadline)
        _Run(comparison, recipes, out, pool, say).compare()
        write_report(out / REPORT, comparison.json())
    return comparison


def write_report(path: Path, content: Json) -> None:
    with atomic_write(path) as file:
        file.write(json.dumps(json_safe(content), indent=1, ensure_ascii=False) + "\n")


@dataclass
class _Run:
    """One comparison while it is computed."""

    comparison: Comparison
    recipes: list[Recipe]
    out: Path
    pool: TrainingPool
    say: Callable[[str], None]
    planned: int = 0
    ended: int = 0
    began: float = 0.0

    def __post_init__(self) -> None:
        self.options, self.names = self.comparison.options, [row.arm.folder for row in self.comparison.arms]

    def compare(self) -> None:
        options, notes = self.options, self.comparison.notes
        self.recipes = controlled(self.recipes, options.control, options.device, self._note)
        if options.tune_rates:
            metric, higher = self.comparison.metric, self.comparison.higher_is_better
            self.recipes = tune_rates(self.names, self.recipes, self.out, self._train, metric, higher, self._note)
        seeds = list(range(1, options.seeds + 1))
        self._seeds(seeds)
        while self._undecided() and len(seeds) < options.up_to:
            seeds.append(len(seeds) + 1)
            notes.append(f"undecided after {len(seeds) - 1} seeds: one more")
            self._seeds(seeds[-1:])

    def _undecided(self) -> bool:
        rows = self.comparison.arms[1:]
        return not self.options.screen and any(self.comparison.verdict(row) == "undecided" for row in rows)

    def _seeds(self, seeds: list[int]) -> None:
        """All arms of these seeds; the first weights are written before, and removed when they have been used."""
        trainings, owners = [], []
        for n, recipe in enumerate(self.recipes):
            todo = [seed for seed in seeds if not Training(recipe, self._folder(n, seed)).finished()]
            if recipe.training.init is None and todo:
                folders = [self._initial(n, seed) for seed in todo]
                with os_errors_for(self.out, "written"):
                    write_initial_weights(recipe, self.recipes[0], todo, folders)
        for seed in seeds:  # all arms of one seed first: what is there is paired
            for n, recipe in enumerate(self.recipes):
                init = (recipe.training.init or str(self._initial(n, seed).absolute())).replace("{seed}", str(seed))
                own = replace(recipe, seed=seed, training=replace(recipe.training, init=init))
                trainings.append(Training(own, self._folder(n, seed)))
                owners.append((self.comparison.arms[n], seed))
        for (row, seed), outcome in zip(owners, self._train(trainings), strict=True):
            _record(row, seed, outcome, self.comparison.metric)
        shutil.rmtree(self.out / "initial", ignore_errors=True)

    def _folder(self, arm: int, seed: int) -> Path:
        return self.out / self.names[arm] / f"seed-{seed}"

    def _initial(self, arm: int, seed: int) -> Path:
        return self.out / "initial" / f"{self.names[arm]}-{seed}"

    def _train(self, trainings: Sequence[Training]) -> list[Outcome]:
        todo = sum(not training.finished() for training in trainings)
        self.planned, self.ended, self.began = todo, 0, time.monotonic()
        return self.pool.run(trainings, self._show)

    def _show(self, outcome: Outcome) -> None:
        if not outcome.seconds:
            return
        self.ended += 1
        left = (time.monotonic() - self.began) / self.ended * (self.planned - self.ended)
        run = outcome.training.run
        metric = self.comparison.metric
        result = f"failed: {outcome.error}" if outcome.error else f"{metric} {outcome.metric(metric):.4f}"
        later = f", about {left / 60:.0f} min left" if left >= 60 else f", about {left:.0f} s left" if left >= 1 else ""
        self.say(
            f"run {self.ended} of {self.planned}: {run.parent.name} {run.name.replace('-', ' ')}: {result} "
            f"({outcome.seconds:.0f} s{later})"
        )

    def _note(self, sentence: str) -> None:
        self.comparison.notes.append(sentence)
        self.say(sentence)


def _record(row: ArmResult, seed: int, outcome: Outcome, metric: str) -> None:
    if outcome.error:
        row.errors[seed] = outcome.error
        return
    try:
        row.values[seed] = outcome.metric(metric)
    except RegardError as error:
        row.errors[seed] = str(error)
        return
    results = outcome.results()
    for name, entry in (results.get("valid") or {}).get("metrics", {}).items():
        if name != metric:
            row.beside.setdefault(name, []).append(entry["value"])
    row.parameters, row.steps = results.get("parameters", 0), results.get("steps", 0)
    row.seconds.append(results.get("seconds", 0.0))
    row.curves[seed] = [(e["step"], e["loss"]) for e in outcome.log() if e.get("kind") == "train" and "loss" in e]


def measured_once(recipe: Recipe) -> Recipe:
    """Final weights are the last ones: the best of many measurements would favour arms whose curve is rough.

    Which metric is compared changes no training, so the same runs answer for another one. A recipe that stops early, or
    averages its checkpoints, is measured as it says.
    """
    training = recipe.training
    if training.validation.patience or training.checkpoints.average:
        return recipe
    goal = "loss" if "loss" in recipe.task.metrics else training.goal
    validation = replace(training.validation, every=training.steps, decode=goal != "loss")
    return replace(recipe, training=replace(training, validation=validation, goal=goal))


@contextlib.contextmanager
def claim_folder(out: Path) -> Iterator[None]:
    """The folder, made if need be, for this process alone."""
    with os_errors_for(out, "written"):
        out.mkdir(parents=True, exist_ok=True)
        with lock_folder(out, out / ".lock") as free:
            if not free:
                raise RegardError(f"{out}: another comparison is running here")
            yield


def _check_same_plan(out: Path, recipes: list[Recipe], arms: Sequence[Arm], options: CompareOptions) -> None:
    """A folder holds one comparison: the same arms, with as many seeds as one likes."""
    plan: Json = {
        "control": options.control,
        "tune_rates": options.tune_rates,
        "arms": {arm.name: config.to_plain(recipe) for arm, recipe in zip(arms, recipes, strict=True)},
    }
    plan = json.loads(json.dumps(plan))
    path = out / PLAN
    if path.exists():
        old = read_json(path)
        if list(old.get("arms", {})) and old != plan:
            changes = list(config.describe_changes(old, plan))
            more = f"; and {len(changes) - 3} more" if len(changes) > 3 else ""
            raise RegardError(f"{out} holds another comparison ({'; '.join(changes[:3])}{more}); give another --out")
        return
    others = [entry.name for entry in out.iterdir() if entry.name != ".lock"]
    if others:
        raise RegardError(f"{out} is not empty and holds no comparison ({others[0]} is there); give another --out")
    with atomic_write(path) as file:
        file.write(json.dumps(plan, indent=1) + "\n")


def describe(comparison: Comparison) -> list[str]:
    """What came of it, in sentences, for people."""
    first, metric = comparison.arms[0], comparison.metric
    sentences = []
    for row in comparison.arms:
        if row.errors:
            seeds = ", ".join(map(str, row.errors))
            sentences.append(f"{row.arm.name}, seed {seeds}: {next(iter(row.errors.values()))}")
    direction = "more" if comparison.higher_is_better else "less"
    for row in comparison.arms[1:]:
        verdict, difference = comparison.verdict(row), row.difference(first)
        if difference is None:
            continue
        name = f"{row.arm.name} against {first.arm.name}"
        seeds = plural(difference.count, "paired seed")
        if verdict == "screen":
            sentences.append(f"{name}: {difference.mean:+.4f} {metric}; a screen, no verdict")
        else:
            more = "" if verdict != "undecided" else "; more seeds may decide it (--up-to 10)"
            sentences.append(f"{name}: {verdict} ({direction} {metric} is better), by {seeds}{more}")
    return sentences
