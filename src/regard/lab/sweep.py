"""A small search over ranges of keys: random draws, and successive halving, which trains the better ones longer.

All on one seed: it finds candidates, and gives no verdict. Those go into a file of arms for `regard compare`.
"""

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from regard import config
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import read_json
from regard.lab.arms import check_metric, flow_text
from regard.lab.compare import claim_folder, measured_once
from regard.lab.controls import changed_fields, with_steps
from regard.lab.trainings import Training, TrainingPool
from regard.recipe import Recipe, load_recipe
from regard.reporting import Json

SWEEP, ARMS = "sweep.json", "arms.yaml"
KEPT = 3  # one in so many goes on to the next rung, which is as much longer
LEAST_STEPS = 10  # of a rung
FORM = "log(1e-4, 1e-2), uniform(0, 0.3), int(1, 4) or [a, b]"


@dataclass(frozen=True)
class Trial:
    """One draw of all ranges, with the metric of the longest rung that it reached."""

    number: int
    keys: Mapping[str, object]
    steps: int = 0
    value: float = math.nan
    error: str = ""

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={flow_text(value)}" for key, value in self.keys.items()]


def draw_trials(ranges: Sequence[str], count: int, seed: int) -> list[Trial]:
    """`count` different draws; the same seed draws the same ones, and more of them begin with the same."""
    if count < 2:
        raise RegardError(f"--trials is {count}; a search needs at least 2")
    draw, spaces = random.Random(seed), [_space(text) for text in ranges]
    trials: list[Trial] = []
    for _ in range(50 * count):
        keys = {key: pick(draw) for key, pick in spaces}
        if len(trials) < count and keys not in [trial.keys for trial in trials]:
            trials.append(Trial(len(trials) + 1, keys))
    return trials


def _space(text: str) -> tuple[str, Callable[[random.Random], object]]:
    key, equals, value = text.partition("=")
    where = f"--sweep {text}"
    found = re.fullmatch(r"\s*(log|uniform|int)\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)\s*", value)
    if not equals or not key.strip():
        raise RegardError(f"{where}: write key='{FORM}'")
    if not found:
        items = config.parse_yaml(value or "''", where).plain()
        if not isinstance(items, list) or len(items) < 2:
            raise RegardError(f"{where}: the range is none of {FORM}")
        return key.strip(), lambda draw: draw.choice(items)
    try:
        low, high = float(found[2]), float(found[3])
    except ValueError:
        raise RegardError(f"{where}: {found[2]} and {found[3]} are not both numbers") from None
    if not low < high or (found[1] == "log" and low <= 0):
        raise RegardError(f"{where}: the range must rise{', from above 0' if found[1] == 'log' else ''}")
    kinds: dict[str, Callable[[random.Random], object]] = {
        "log": lambda draw: float(f"{math.exp(draw.uniform(math.log(low), math.log(high))):.4g}"),
        "uniform": lambda draw: float(f"{draw.uniform(low, high):.4g}"),
        "int": lambda draw: draw.randint(int(low), int(high)),
    }
    return key.strip(), kinds[found[1]]


def rungs(count: int, steps: int, halving: bool) -> list[tuple[int, int]]:
    """How many trials are trained for how many steps: 9 for a ninth, 3 for a third, 1 for all."""
    if not halving:
        return [(count, steps)]
    found = [(max(1, count // KEPT**n), n) for n in range(math.floor(math.log(max(count, 1), KEPT) + 1e-9) + 1)]
    last = found[-1][1]
    return [(many, max(LEAST_STEPS, round(steps / KEPT ** (last - n)))) for many, n in found]


def sweep(
    base: str,
    ranges: Sequence[str],
    out: Path,
    trials: int,
    halving: bool,
    metric: str | None,
    jobs: int,
    device: str,
    common: Sequence[str],
    say: Callable[[str], None],
) -> tuple[str, list[Trial]]:
    """The metric, and the trials, the best first; the same command goes on where it was stopped."""
    chosen = draw_trials(ranges, trials, 1)
    recipes = [load_recipe(base, [*common, *trial.overrides]) for trial in chosen]
    name, higher = check_metric(recipes, metric)
    plan: Json = {"base": base, "ranges": list(ranges), "common": list(common), "trials": trials, "halving": halving}
    with claim_folder(out):
        if (out / SWEEP).exists() and {**read_json(out / SWEEP), "found": None} != {**plan, "found": None}:
            raise RegardError(f"{out} holds another sweep; give another --out")
        if not (out / SWEEP).exists() and [entry.name for entry in out.iterdir() if entry.name != ".lock"]:
            raise RegardError(f"{out} is not empty and holds no sweep; give another --out")
        _write(out / SWEEP, {**plan, "found": None})
        pool = TrainingPool(jobs, device, out / "recipes")
        for many, steps in rungs(len(chosen), recipes[0].training.steps, halving):
            say(f"{many} of {len(chosen)} trials for {steps:,} steps")
            trained = [
                Training(_shortened(recipes[trial.number - 1], steps), out / f"trial-{trial.number}" / f"{steps}")
                for trial in chosen[:many]
            ]
            for n, outcome in enumerate(pool.run(trained, lambda outcome: None)):
                value = math.nan if outcome.error else outcome.metric(name)
                chosen[n] = replace(chosen[n], steps=steps, value=value, error=outcome.error)
            chosen.sort(key=lambda trial: _rank(trial, higher))
        _write(out / SWEEP, {**plan, "found": [vars(trial) for trial in chosen]})
        best = {f"trial {trial.number}": dict(trial.keys) for trial in chosen[:2] if not trial.error}
        with atomic_write(out / ARMS) as file:
            file.write(yaml.safe_dump({"as it is": {}, **best}, sort_keys=False, allow_unicode=True))
    return name, chosen


def _rank(trial: Trial, higher: bool) -> tuple[int, bool, float]:
    """Those trained longest first, then by the metric; what broke comes last of its rung."""
    broken = not math.isfinite(trial.value)
    return -trial.steps, broken, 0.0 if broken else -trial.value if higher else trial.value


def _shortened(recipe: Recipe, steps: int) -> Recipe:
    """Fewer steps, with as much less warmup, measured once."""
    share, short = steps / recipe.training.steps, with_steps(recipe, steps)
    schedule = short.training.schedule
    if share != 1 and (warmup := vars(schedule).get("warmup")) is not None:
        schedule = changed_fields(schedule, {"warmup": max(1, round(warmup * share))})
    return measured_once(replace(short, training=replace(short.training, schedule=schedule)))


def _write(path: Path, content: Json) -> None:
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).replace("NaN", "null") + "\n")
