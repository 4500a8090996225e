"""Engines that translate: our own, or CTranslate2. An engine is a function that loads a run."""

from collections.abc import Callable
from functools import partial

from regard.api import ModelLoader
from regard.config import nearest
from regard.errors import RegardError

WEIGHTS = ("float32", "int8")


def engine_loader(engine: str, precision: str | None) -> ModelLoader:
    if engine not in ENGINES:
        raise RegardError(f"--engine is {engine!r}; {nearest(engine, ENGINES)}")
    return ENGINES[engine](precision)


def _own(precision: str | None) -> ModelLoader:
    from regard.api import load
    from regard.predict.base import PRECISIONS

    if precision is not None and precision not in PRECISIONS:
        raise RegardError(f"--precision is {precision!r}; write {' or '.join(PRECISIONS)}")
    return partial(load, precision=precision or "float32")


def precision_loader(precision: str | None) -> ModelLoader:
    """For commands of models that do not translate, whose products are in float32 or in 8 bits."""
    from regard.api import load

    if precision not in (None, *WEIGHTS):
        raise RegardError(f"--precision is {precision!r}; write {' or '.join(WEIGHTS)}")
    return partial(load, precision=precision or "float32")


def _ct2(precision: str | None) -> ModelLoader:
    from regard.interop.ct2_engine import load_ct2

    return partial(load_ct2, precision=precision or "int8")


ENGINES: dict[str, Callable[[str | None], ModelLoader]] = {"own": _own, "ct2": _ct2}
