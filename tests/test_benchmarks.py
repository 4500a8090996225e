"""`benchmarks/all.py`: its parts can be run, its tables are the pages', and a run becomes JSON and a row."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FAKE = """
import json, sys, time
from pathlib import Path
speed, path = sys.argv[1], sys.argv[sys.argv.index("--json") + 1]
if speed == "slow":
    time.sleep(60)
if speed == "broken":
    sys.exit("there is no such speed")
times = Path(__file__).with_name("times")
times.write_text(times.read_text() + "x" if times.exists() else "x")
Path(path).write_text(json.dumps({"speed": float(speed), "count": len(times.read_text())}))
"""


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    """Imports a script of benchmarks/, which import each other by their bare names."""
    before = set(sys.modules)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "benchmarks"))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmarks")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def everything(load: Any) -> ModuleType:
    return load("all")


def test_the_list_names_every_part(everything: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert everything.main(["--list"]) == 0
    printed = capsys.readouterr().out
    for part in everything.PARTS:
        assert f"{part.name}: " in printed
        assert part.runs()[0].command() in printed
    assert "target    bleu >= 44.3, minutes <= 4" in printed
    assert printed.count("  published ") == len(everything.PARTS)


def test_commands_of_parts_parse_and_none_takes_longer_than_a_run_may(everything: ModuleType, load: Any) -> None:
    pytest.importorskip("psutil")  # of benchmarks/serving.py
    for part in everything.PARTS:
        assert 60 * part.minutes < everything.LIMIT
        parser = load(part.script.removesuffix(".py")).parser()
        for run in part.runs():
            parser.parse_args([*run.words("runs/x", "runs/y"), "--json", "x.json"])


@pytest.mark.parametrize("page", ["results.md", "zh/results.md"])
def test_the_page_has_the_table_of_the_published_figures(everything: ModuleType, page: str) -> None:
    language = everything.PAGES[ROOT / "docs" / page]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    made = everything.table(everything.PARTS, everything.PUBLISHED, language)
    assert everything.with_table(text, made) == text, "write it: python benchmarks/all.py --table"
    assert len(text.splitlines()) <= 140


def test_both_tables_have_the_same_numbers(everything: ModuleType) -> None:
    """In every row: a figure that one language leaves out, or adds, is found."""
    one, other = (everything.table(everything.PARTS, everything.PUBLISHED, language).splitlines()
                  for language in everything.PAGES.values())  # fmt: skip
    numbers = sys.modules["languages"].NUMBER
    assert len(one) > 20
    for english, chinese in zip(one, other, strict=True):
        assert sorted(numbers.findall(english)) == sorted(numbers.findall(chinese)), f"{english}\n{chinese}"
        assert english.split("`")[1::2] == chinese.split("`")[1::2]  # names and commands


def test_the_chinese_words_of_the_table_are_complete(everything: ModuleType) -> None:
    words = sys.modules["languages"]
    assert list(words.PARTS) == [part.name for part in everything.PARTS]
    fields = lambda text: sorted(re.findall(r"{[^}]*}", text))  # noqa: E731
    for part in everything.PARTS:
        title, figure = words.PARTS[part.name]
        assert fields(figure) == fields(part.figure), part.name  # the same figures, as exact
        for english, chinese in ((part.title, title), (part.figure, figure)):
            assert sorted(words.NUMBER.findall(english)) == sorted(words.NUMBER.findall(chinese)), part.name
    for english, chinese in words.NOTES.items():
        assert fields(chinese) == fields(english)
    with pytest.raises(SystemExit, match=r"languages\.py has no Chinese for measured in \{\} h of rain"):
        words.CHINESE.note("measured in 3.5 h of rain")


def test_published_figures_belong_to_a_part_and_to_a_commit(everything: ModuleType) -> None:
    runs = {run.name: run for part in everything.PARTS for run in part.runs()}
    files = sorted(everything.PUBLISHED.glob("*.json"))
    assert files
    for path in files:
        result = json.loads(path.read_text(encoding="utf-8"))
        run = runs[path.stem]
        assert (result["part"], result["seed"]) == (run.part.name, run.seed)
        assert everything.settled(result["commit"]), path.name
        for target in run.part.targets:
            assert target.figure in result["figures"]


def decoded(work: str, beam: int, times: float) -> list[dict[str, Any]]:
    """Rows of benchmarks/decoding.py: Hugging Face, and ours as many times as fast."""
    rows = [("Hugging Face, bf16", 1.0), ("regard, float32", times), ("regard, bf16", 2 * times)]
    return [{"work": work, "beam": beam, "engine": engine, "times": t, "tokens_per_second": 100 * t, "p50_ms": 8 / t}
            for engine, t in rows]  # fmt: skip


def scored(who: str, seconds: float, f1: float) -> dict[str, Any]:
    return {"who": who, "seed": 1, "seconds_per_step": seconds, "f1": f1}


SPEED = {"tokens/s": 900.0, "times": 2.0, "of peak": 0.5}
WRITTEN = {  # what scripts write, and the cell that it becomes
    "training-base": ({"regard": SPEED}, "900 target tokens/s, 2.00 × the fastest peer, 50% of peak"),
    "bert": ({"bert": {"regard": SPEED}}, "900 tokens/s, 2.00 × the fastest peer, 50% of peak"),
    "training-tiny": (
        {"regard": SPEED, "regard, bf16": SPEED | {"times": 3.0}},
        "float32: 900 target tokens/s, 2.00 × the fastest peer; bf16: 900, 3.00 ×",
    ),
    "sparse-attention": (
        {"rows": [{"pattern": p, "n": n, "ms": ms * n} for n in (4096, 16_384, 65_536) for p, ms in
                  (("full", 8), ("window", 2), ("bigbird", 4), ("bigbird, a quarter padded", 1))]},
        "window(256) 4.0 × and 4.0 ×, BigBird 2.0 × and 2.0 × as fast",
    ),
    "long-model": (
        {"rows": [{"mechanism": name, "n": n, "ms": ms * n, "tokens_per_second": 9e8 / n / ms}
                  for n in (512, 4096, 16_384, 65_536) for name, ms in (("full", 8), ("bigbird", 4))]},
        "2.00 × as fast at 4,096 tokens, 2.0 × at 16,384 with 13,733 tokens/s, 2.0 × at 65,536",
    ),
    "long-decode": (
        {"rows": [{"mechanism": name, "n": n, "ms": n / 65_536, "mb": mb} for n in (512, 65_536) for name, mb in
                  (("full", 2048), ("window(256)", 4), ("strided_conv", 700))]},
        "full 1.0 ms, 2,048 MB of caches; window(256) 1.0 ms, 4 MB; strided convolution 1.0 ms, 700 MB",
    ),
    "long-leads-t-dmca-11000-extract": (
        {"loss": 2.05, "low": 2, "high": 2.125, "arm": "t-dmca"}, "2.050 nats a token, 2.000 to 2.125"
    ),
    "long-answers-bigbird": (
        {"rows": [{"arm": "bigbird", "long": "truncate", "exact_match": 50, "f1": 60, "seconds": 2}]},
        "EM / F1: 50.0 / 60.0, 2.0 s",
    ),
    "long-answers-short": (
        {"rows": [{"long": way, "exact_match": 50, "f1": n, "seconds": 2} for n, way in enumerate(
            ["truncate", "{kind: truncate, keep: tail}", "{kind: truncate, keep: both}", "extract",
             "{kind: extract, by: centrality}", "{kind: extract, by: attention}", "segments"])]},
        "EM / F1: truncate 50.0 / 0.0, 2.0 s; truncate tail 50.0 / 1.0, 2.0 s; truncate both 50.0 / 2.0, 2.0 s; "
        "extract 50.0 / 3.0, 2.0 s; extract centrality 50.0 / 4.0, 2.0 s; extract attention 50.0 / 5.0, 2.0 s; "
        "segments 50.0 / 6.0, 2.0 s",
    ),
    "long-memory": (
        {"gain": 0.05, "above_windows": 0.004, "times": 25, "rows": []},
        "perplexity 5.0% below segments side by side, +0.40% from windows that slide by 8, 25 × as fast as these",
    ),
    "long-cpu": (
        {"exponents": {name: {"ms": (n, 0.01), "mb": (1, 0)} for n, name in enumerate(
            ("full", "window(256)", "bigbird", "linformer", "strided_conv", "memory"))}},
        "full 0.00 ± 0.01, window(256) 1.00 ± 0.01, BigBird 2.00 ± 0.01, Linformer 3.00 ± 0.01, strided convolution "
        "4.00 ± 0.01, a memory 5.00 ± 0.01",
    ),
    "decoding-1": (
        [*decoded("batch 1", 1, 2.0), *decoded("batch 1", 4, 4.0)],
        "beam 1: 400 tokens/s, 4.0 ×, p50 2.0 ms; beam 4: 800, 8.0 × Hugging Face generate, p50 1.0 ms",
    ),
    "decoding-cpu": (
        [row for n in (1, 64) for beam in (1, 4) for row in decoded(f"batch {n}", beam, n + beam)],
        "batch 1: beam 1 2.00 ×, bf16 4.00 ×, beam 4 5.00 ×, bf16 10.00 ×; "
        "batch 64: beam 1 65.00 ×, bf16 130.00 ×, beam 4 68.00 ×, bf16 136.00 ×",
    ),
    "minilm-squad": (
        {"tasks": {"squad": {"rows": [scored("transformers", 0.004, 65.0), scored("regard", 0.002, 66.0)]}}},
        "F1: regard 66.00, transformers 65.00; a step 2.0 and 4.0 ms",
    ),
    "look": (
        {"page_bytes": 6e6, "interactions": {"a": {"median_ms": 1, "p95_ms": 9, "busy_ms": 3},
                                             "b": {"median_ms": 2, "p95_ms": 8, "busy_ms": 4}}},
        "slowest interaction: median 2 ms, p95 9 ms, of which the page computes 4; page 6.0 MB",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_script_writes_becomes_figures(everything: ModuleType, name: str) -> None:
    written, cell = WRITTEN[name]
    part = next(part for part in everything.PARTS if part.name == name)
    figures = part.read(written)
    assert part.figure.format(**figures) == cell
    assert {target.figure for target in part.targets} <= set(figures)


@pytest.fixture
def fake(everything: ModuleType, tmp_path: Path) -> Any:
    """A part with two seeds, whose speeds are 10 and 20, and what it takes to run it apart from the real ones."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE, encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{everything.BEGIN}\n{everything.END}\n\nbehind\n", encoding="utf-8")
    part = everything.Part("fake", "A fake", "{speed:.1f} tokens/s", str(script), "{seed}0", lambda found: found, 0.1,
                           gpu=False, seeds=(1, 2))  # fmt: skip
    words = ["--into", str(tmp_path / "into"), "--published", str(tmp_path / "into"), "--page", str(page)]

    def main(*more: str, part: Any = part) -> int:
        return everything.main([*words, *more], [part])

    main.part, main.page, main.into = part, page, tmp_path / "into"  # type: ignore[attr-defined]
    return main


def test_a_run_becomes_json_and_a_row_and_is_kept(fake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert fake("fake-2", "--commit", "abc1234") == 0
    assert fake("--commit", "abc1234") == 0
    assert "2 measured" not in capsys.readouterr().out  # the second seed was there already
    result = json.loads((fake.into / "fake-1.json").read_text(encoding="utf-8"))
    assert (result["commit"], result["seed"], result["figures"]["speed"]) == ("abc1234", 1, 10.0)
    assert fake("--table") == 0
    page = fake.page.read_text(encoding="utf-8")
    assert page.startswith("before\n") and page.endswith("behind\n")  # noqa: PT018
    assert "| A fake | 15.0 tokens/s (mean of seeds 1, 2: 10.00 / 20.00) | " in page
    assert fake("--table") == 0
    assert fake.page.read_text(encoding="utf-8") == page

    counts = lambda: [json.loads((fake.into / f"fake-{n}.json").read_text())["figures"]["count"] for n in (1, 2)]  # noqa: E731
    assert counts() == [2, 1]
    assert fake("--commit", "def5678", "fake-1") == 0  # another commit is measured anew, and replaces the row
    assert fake("--commit", "def5678", "fake-1", "--again") == 0
    assert counts() == [4, 1]
    assert fake("--table") == 0
    assert "| def5678; abc1234 |" in fake.page.read_text(encoding="utf-8")


def test_code_that_no_commit_names_is_always_measured(fake: Any) -> None:
    for _ in range(2):
        assert fake("--commit", "abc1234-dirty", "fake-1") == 0
    assert json.loads((fake.into / "fake-1.json").read_text())["figures"]["count"] == 2


def test_what_fails_or_lacks_something_does_not_end_the_others(
    fake: Any, everything: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    fake("--commit", "abc1234", "fake-1")
    broken = replace(fake.part, arguments="broken")
    assert fake("--commit", "def5678", part=broken) == 1
    assert "failed: there is no such speed" in capsys.readouterr().out
    assert json.loads((fake.into / "fake-1.json").read_text())["commit"] == "abc1234"  # the last good figure stays

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert fake("--commit", "abc1234", "--again", part=replace(fake.part, gpu=True)) == 0
    assert "skipped: no GPU" in capsys.readouterr().out

    monkeypatch.setattr(everything, "LIMIT", 0.5)
    assert fake("--commit", "abc1234", "--again", part=replace(fake.part, arguments="slow", seeds=())) == 1
    assert "failed: not done after" in capsys.readouterr().out


def test_targets_are_those_of_the_mean(fake: Any, everything: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    target = sys.modules["parts"].Target
    assert fake("--commit", "abc1234", part=replace(fake.part, targets=(target("speed", ">=", 12.0),))) == 0
    assert "speed >= 12: reached" in capsys.readouterr().out
    assert fake("--commit", "abc1234", part=replace(fake.part, targets=(target("speed", "<=", 12.0),))) == 0
    assert "speed <= 12: MISSED" in capsys.readouterr().out


def test_a_part_that_does_not_exist_is_said(fake: Any) -> None:
    with pytest.raises(SystemExit, match="there is no part tatoba"):
        fake("tatoba")
