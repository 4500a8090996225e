"""What arms of a comparison have in common: as many steps, tokens, seconds or parameters; and a rate tuned for each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from regard import config
from regard.config import Choice
from regard.console import Console
from regard.errors import RegardError
from regard.lab.corpus import parameters_built
from regard.lab.trainings import Outcome, Training
from regard.recipe import Recipe
from regard.run import dry_run
from regard.tasks.contract import Task

CONTROLS = ("steps", "tokens", "time", "parameters")
FACTORS = (0.5, 1.0, 2.0)  # of the rate; more while the best lies at an end
MOST_FACTORS = 7
TUNING_SEED = 0  # none of those that are compared

C = TypeVar("C", bound=Choice)
Say = Callable[[str], None]
Train = Callable[[Sequence[Training]], list[Outcome]]


def controlled(recipes: Sequence[Recipe], control: str, device: str, say: Say) -> list[Recipe]:
    """The recipes with as much of the control as the first has."""
    if control not in CONTROLS:
        raise RegardError(f"--control is {control!r}; {config.nearest(control, CONTROLS)}")
    if control == "tokens":
        return [with_steps(each, recipes[0].training.steps * _budget(recipes[0]) / _budget(each)) for each in recipes]
    if control == "time":
        quiet = Console(stderr=True, quiet=True)
        seconds = [float(dry_run(each, device, quiet)["seconds a step"]) for each in recipes]
        scaled = [
            with_steps(each, recipes[0].training.steps * seconds[0] / own)
            for each, own in zip(recipes, seconds, strict=True)
        ]
        for each, own in zip(scaled, seconds, strict=True):
            say(f"{own * 1e3:.0f} ms a step: {each.training.steps:,} steps")
        return scaled
    if control == "parameters":
        target = count_parameters(recipes[0], prepare(recipes[0]))
        return [recipes[0], *(_with_parameters(each, target, say) for each in recipes[1:])]
    return list(recipes)


def prepare(recipe: Recipe) -> Task:
    """The task of a recipe, with its vocabulary and prepared data."""
    return recipe.task.prepare(replace(recipe, data=recipe.data.absolute()), None, lambda what, done, total: None)


def count_parameters(recipe: Recipe, task: Task) -> int:
    if hasattr(task, "recipe"):
        task.recipe = recipe
    return parameters_built(task.build_model)


def with_steps(recipe: Recipe, steps: float) -> Recipe:
    """Other steps, and as many validations and checkpoints as before."""
    training = recipe.training
    share, count = steps / training.steps, max(1, round(steps))

    def scaled(every: int) -> int:
        return max(1, round(every * share))

    validation = replace(training.validation, every=scaled(training.validation.every))
    checkpoints = replace(training.checkpoints, every=scaled(training.checkpoints.every))
    return replace(recipe, training=replace(training, steps=count, validation=validation, checkpoints=checkpoints))


def changed_fields(choice: C, values: dict[str, float]) -> C:
    """A copy of a config with other values of some keys."""
    return type(choice)(**{**vars(choice), **values})


def _budget(recipe: Recipe) -> int:
    return recipe.training.tokens_per_batch * recipe.training.accumulate


def _with_parameters(recipe: Recipe, target: int, say: Say) -> Recipe:
    """The width inside the feed-forward network that gives as many parameters, to a percent."""
    keys = vars(recipe.model)
    key = next((name for name in ("inner", "size") if name in keys), None)
    if key is None:
        raise RegardError(f"--control parameters: the model {recipe.model.kind} has no key inner or size to change")
    task = prepare(recipe)
    step = int(keys.get("heads") or 1) if key == "size" else 1

    def widened(width: int) -> Recipe:
        return replace(recipe, model=changed_fields(recipe.model, {key: width * step}))

    low, high = 1, max(2, 4 * int(keys[key]) // step)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if count_parameters(widened(middle), task) < target else (low, middle)
    best = min((w for w in (low - 1, low) if w > 0), key=lambda w: abs(count_parameters(widened(w), task) - target))
    count = count_parameters(widened(best), task)
    if abs(count - target) > 0.01 * target:
        raise RegardError(
            f"--control parameters: no model.{key} gives the {target:,} parameters of the first arm; "
            f"the nearest is {best * step}, with {count:,}"
        )
    say(f"model.{key} {keys[key]} → {best * step}: {count:,} parameters of {target:,}")
    return widened(best)


# --- rates ---------------------------------------------------------------------------------------------------------


def rate_key(recipe: Recipe) -> tuple[str, float]:
    """The key of the schedule that says how high rates are, and its value."""
    keys = vars(recipe.training.schedule)
    for name in ("peak", "factor"):
        if isinstance(keys.get(name), float | int) and keys[name] > 0:
            return name, float(keys[name])
    raise RegardError(f"--tune-rates: the schedule {recipe.training.schedule.kind} has no peak or factor above 0")


def with_rate(recipe: Recipe, factor: float) -> Recipe:
    name, value = rate_key(recipe)
    schedule = changed_fields(recipe.training.schedule, {name: value * factor})
    return replace(recipe, training=replace(recipe.training, schedule=schedule))


def quarter(recipe: Recipe) -> Recipe:
    """A quarter of the steps and of their warmup, on a seed that is not compared, measured once."""
    short = replace(with_steps(recipe, recipe.training.steps / 4), seed=TUNING_SEED)
    schedule, training = short.training.schedule, short.training
    if (warmup := vars(schedule).get("warmup")) is not None:
        training = replace(training, schedule=changed_fields(schedule, {"warmup": max(1, warmup // 4)}))
    return replace(short, training=training)


def tune_rates(
    names: Sequence[str], recipes: Sequence[Recipe], out: Path, train: Train, metric: str, higher: bool, say: Say
) -> list[Recipe]:
    """For every arm the best of some rates on one seed at a quarter of the steps; more where it lies at an end."""
    measured: list[dict[float, float]] = [{} for _ in recipes]
    sign = -1 if higher else 1

    def wanted(values: dict[float, float]) -> list[float]:
        if not values:
            return list(FACTORS)
        good = {factor: value for factor, value in values.items() if value < float("inf")}
        if len(values) >= MOST_FACTORS or not good:
            return []
        best = min(good, key=lambda factor: good[factor])
        ends = {min(values): best / 2, max(values): best * 2}
        return [ends[best]] if best in ends else []

    while todo := [(n, factor) for n, values in enumerate(measured) for factor in wanted(values)]:
        trainings = [
            Training(quarter(with_rate(recipes[n], factor)), out / names[n] / f"rate-{factor:g}") for n, factor in todo
        ]
        for (n, factor), outcome in zip(todo, train(trainings), strict=True):
            measured[n][factor] = float("inf") if outcome.error else sign * outcome.metric(metric)
    tuned = []
    for name, recipe, values in zip(names, recipes, measured, strict=True):
        best = min(values, key=lambda factor: values[factor])
        key, value = rate_key(recipe)
        broken = sum(value == float("inf") for value in values.values())
        failed = f", of which {broken} failed" if broken else ""
        say(f"{name}: training.schedule.{key} {value * best:g} is the best of {len(values)} rates{failed}")
        tuned.append(with_rate(recipe, best))
    return tuned
