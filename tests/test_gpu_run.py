"""`make gpu` without a GPU: items that fail, hang, die or say nothing are told as such, and nothing is planned twice
or lost.
"""

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import choices, recipes, run, server, stand_ins
from tests.gpu.scheduler import Item, Row, Scheduler

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src")]))


def item(name: str, code: str, *expects: str, **keys: object) -> Item:
    """`tests` imports torch; what an item says is written by hand here, so that it starts at once."""
    says = (
        "import json, os, sys, time, subprocess\n"
        "def write(**line): open(os.environ['REGARD_GPU_RESULTS'], 'a').write(json.dumps(line) + '\\n')\n"
        "def done(what, status='passed', **more): write(begin=what); write(what=what, status=status, **more)\n"
    )
    return Item("area", name, [sys.executable, "-S", "-c", says + code], list(expects), **keys)  # type: ignore[arg-type]


def ran(tmp_path: Path, *items: Item, seconds: float = 30.0, workers: int = 4) -> dict[str, Row]:
    lines: list[str] = []
    scheduler = Scheduler(list(items), tmp_path, workers, time.monotonic() + seconds, lines.append)
    rows = {f"{row.group}: {row.what}": row for row in scheduler.run()}
    assert len(lines) == len(items)
    return rows


def test_what_passes_fails_hangs_and_dies(tmp_path: Path) -> None:
    began = time.monotonic()
    rows = ran(
        tmp_path,
        item("good", "done('a', seconds=1.5); done('b', 'skipped'); done('c', 'refused', group='own')", "a", "b", "c"),
        item("bad", "done('a'); done('b', 'failed', note='no'); print('the end'); sys.exit(1)", "a", "b", "c"),
        item("hangs", "done('a'); write(begin='b'); time.sleep(60)", "a", "b", "c", limit=1.0),
        item("killed", "write(begin='a'); os.kill(os.getpid(), 9)", "a"),
        item("silent", "pass", "a"),
        item("no start", "raise SystemExit('broken')", "a"),
    )
    assert time.monotonic() - began < 15
    assert all(rows[name].fine for name in ("good: a", "good: b", "own: c"))
    assert rows["good: a"].seconds == 1.5
    assert rows["bad: b"].status == "failed"
    assert "the end" in rows["bad: b"].tail
    assert [rows[f"hangs: {what}"].status for what in "abc"] == ["passed", "failed", "not run"]
    assert "limit of 1 s" in rows["hangs: b"].note
    assert (rows["killed: a"].status, rows["killed: a"].note) == ("failed", "its process ended with -9")
    assert rows["silent: a"].status == "not run"
    assert rows["no start: (the process)"].status == "failed"
    assert rows["no start: a"].status == "not run"
    assert sum(not row.fine for row in rows.values()) == 8


def test_what_an_item_started_ends_with_it(tmp_path: Path) -> None:
    code = "child = subprocess.Popen(['sleep', '60']); done(str(child.pid)); time.sleep(60)"
    rows = ran(tmp_path, item("parent", code, limit=1.5))
    pid = next(row.what for row in rows.values() if row.status == "passed")
    for _ in range(100):  # the kernel takes its time
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child goes on")


def test_what_comes_after_a_failure_and_after_the_time(tmp_path: Path) -> None:
    rows = ran(
        tmp_path,
        item("first", "done('a', 'failed')", "a"),
        item("second", "done('a')", "a", after=("first",)),
        item("slow", "write(begin='a'); time.sleep(60)", "a", "b", estimate=100),
        item("late", "done('a')", "a", estimate=1),
        seconds=2.0,
        workers=1,
    )
    assert rows["slow: a"].note == "killed when the time of the whole run was over"
    assert rows["slow: b"].status == "not run"
    assert (rows["late: a"].status, rows["late: a"].note) == ("not run", "no time was left")
    assert rows["second: a"].status == "not run"
    assert not any(row.fine for row in rows.values())


def test_results_of_one_are_there_for_the_next(tmp_path: Path) -> None:
    there = tmp_path / "there"
    rows = ran(
        tmp_path,
        item("second", f"done('a', 'passed' if os.path.exists({str(there)!r}) else 'failed')", "a", after=("first",)),
        item("first", f"time.sleep(0.3); open({str(there)!r}, 'w'); done('a')", "a"),
    )
    assert all(row.fine for row in rows.values())


def test_every_recipe_is_planned_after_what_it_begins_with(tmp_path: Path) -> None:
    items = {each.name: each for each in recipes.plan(tmp_path, "cpu", True, {"glue/SST-2"})}
    assert set(items) == {*recipes.names(), recipes.MINILM, "commands"}
    assert items["ulmfit-sst2"].after == ("ulmfit-sst2-lm",)
    assert items["sst2-minilm"].after == (recipes.MINILM,)
    assert items["sst2-minilm"].note == "made glue/SST-2, made weights"
    assert items["quickstart"].expects == [
        *("train, killed", "resume", "evaluate", "evaluate bf16", "translate", "translate bf16")
    ]
    assert set(recipes.plan(tmp_path, "cpu", True, set(), ["ulmfit-sst2"])[0].expects)
    few = [each.name for each in recipes.plan(tmp_path, "cpu", True, set(), ["ulmfit-sst2", "quickstart"])]
    assert sorted(few) == ["commands", "quickstart", "ulmfit-sst2", "ulmfit-sst2-lm", "ulmfit-wikitext2"]
    assert all(set(recipes.asks(recipes.read(name))) <= set(recipes.ASKED) for name in recipes.names())


def test_every_test_on_a_gpu_has_an_area() -> None:
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "gpu").glob("test_*.py")}
    assert here <= set(run.AREAS)
    assert all((ROOT / file).exists() for file in run.AREAS)


def test_tests_are_cut_up_by_their_seconds() -> None:
    ids = [f"t{n}" for n in range(6)]
    known = {"t0": 60.0, "t1": 20.0, "t2": 5.0, "t3": 5.0}
    assert run.chunks(ids, known) == [["t0"], ["t1", "t2"], ["t3", "t4", "t5"]]
    last = {"rows": {"kernels: test_half: tests/a.py::b[x: y]": ["passed", 3.5]}, "items": {"quickstart": 40.0}}
    assert run.known_seconds(last) == {"tests/a.py::b[x: y]": 3.5, "quickstart": 40.0}


def test_every_choice_can_be_had_somewhere() -> None:
    """Each value of each slot is accepted with some model in some place: none is left out, always refused."""
    able, every = set(), set()
    for choice in choices.listed():
        value = choice.overrides[-1].rpartition(".")[2] if choice.overrides else f"{choice.task} {choice.model}"
        name = f"{choice.slot} {value}"
        every.add(name)
        if name not in able and choices.accepted(choice):
            able.add(name)
    assert len(every) > 80
    assert every == able


def test_the_stand_in_measures_as_seqeval_does() -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    ours: dict[str, Any] = {}
    exec(stand_ins.METRICS, ours)
    draw = random.Random(0)
    tags = ["O", "B-A", "I-A", "B-B", "I-B"]
    right, said = ([[draw.choice(tags) for _ in range(8)] for _ in range(60)] for _ in range(2))
    said = [a if n % 3 else b for n, (a, b) in enumerate(zip(right, said, strict=True))]
    for name in ("accuracy_score", "precision_score", "recall_score", "f1_score"):
        assert ours[name](right, said) == pytest.approx(getattr(seqeval, name)(right, said))


def test_the_table_counts_and_names(tmp_path: Path) -> None:
    rows = [
        Row("recipes", "quickstart", "resume", "passed", 3.0),
        Row("recipes", "quickstart", "evaluate", "failed", 2.0, "ValueError: no"),
        Row("serve", "serve bert", "load", "passed", 1.0),
    ]
    shown = run.table(rows, {"serve bert": "made data"}).splitlines()
    assert " ".join(shown[1].split()) == "recipes quickstart 1 passed, 1 failed 5 evaluate: ValueError: no"
    assert shown[2].endswith("made data")


def test_servers_are_asked_for_what_their_task_can_do(tmp_path: Path) -> None:
    for name, (recipe, _) in server.MODELS.items():
        assert recipe in recipes.names()
        assert len(set(server.rows(name))) == len(server.rows(name))


def test_what_only_a_gpu_runs_still_fits_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins of tests for a GPU are what the training loop asks of a task today."""
    from tests.gpu import test_heads, test_replay

    for module in (test_heads, test_replay):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    for kind in test_heads.HEADS:
        losses, _, _ = test_heads.learn(kind, False, False, steps=1)
        assert losses.isfinite().all()
    assert test_replay.learn(test_replay.build(False, {}), [test_replay.batches(1, size=4)], 2).isfinite().all()
