"""One cache for the whole test run, away from the user's own, and one thread; and where our own kernels run."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from regard import config
from regard import recipe as recipes
from regard.accel import linear, norm
from regard.accel import packed_attention as short
from regard.config.registry import SLOTS
from regard.nn import dispatch
from regard.run import train_recipe
from tests.cuda_types import products_to_float32
from tests.training import toy

ROOT = Path(__file__).parent.parent
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("ours", deadline=None)  # a busy machine is slow, not wrong
settings.load_profile("ours")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    patch = pytest.MonkeyPatch()
    patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("REGARD_LANG", "en")  # whatever the locale
    patch.setenv("OMP_NUM_THREADS", "1")  # models this small: two threads would only wait for each other
    torch.set_num_threads(1)
    yield
    patch.undo()


@pytest.fixture
def own_choices() -> Iterator[None]:
    """What a test registers, and the plugins that it loads, are forgotten after it."""
    before = {slot: dict(config.choices(slot)) for slot in SLOTS}
    modules = set(sys.modules)
    patch = pytest.MonkeyPatch()
    patch.setenv("REGARD_PLUGINS", "")
    patch.setattr(sys, "path", list(sys.path))
    yield
    patch.undo()
    for slot, known in before.items():
        config.choices(slot).clear()
        config.choices(slot).update(known)
    for name in set(sys.modules) - modules:
        if not (getattr(sys.modules[name], "__file__", None) or "").startswith(
            (sys.prefix, sys.base_prefix, str(ROOT))
        ):
            del sys.modules[name]


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the toy corpus; read it, do not change it."""
    folder = tmp_path_factory.mktemp("toy")
    toy.write_corpus(folder)
    train_recipe(recipes.load_recipe(toy.recipe(folder, steps=40)), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Where our own kernels run: a GPU, or else a CPU, where Triton interprets them, one program after the other."""
    gpu = torch.cuda.is_available()
    if not gpu:
        monkeypatch.setattr(dispatch, "DEVICES", {"cpu"})
        monkeypatch.setattr(short, "PROGRAMS", {16: 2, 32: 2, 64: 1, 128: 1})
        monkeypatch.setattr(norm, "PROGRAMS", 2)
        monkeypatch.setattr(linear, "SPLITS", 2)
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that a kernel forgets to write is NaN
    with contextlib.nullcontext() if gpu else products_to_float32():
        yield torch.device("cuda" if gpu else "cpu")
    torch.use_deterministic_algorithms(False)
