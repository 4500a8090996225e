import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data import prepared as module
from regard.data.config import Corpus, Filters
from regard.data.prepared import HashSet, PreparedCorpus, epoch_rows, prepare_corpora
from regard.data.ragged import RaggedWriter
from regard.errors import RegardError

from .words import Words

PLAIN = Filters()


def tsv(folder: Path, rows: list[tuple[str, str]], name: str = "a.tsv", **options: Any) -> Corpus:
    path = folder / name
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return Corpus(path=str(path), **options)


def run(tmp_path: Path, *corpora: Corpus, filters: Filters = PLAIN, size: int = 1000, **options: Any) -> PreparedCorpus:
    words = Words(size)
    return prepare_corpora(corpora, {"source": words, "target": words}, filters, tmp_path / "cache", **options)


def test_rows_and_where_they_came_from(tmp_path: Path):
    words = Words()
    first = tsv(tmp_path, [("a b", "c"), ("", "x"), ("d", "e f g")])
    second = tsv(tmp_path, [("h", "i")], "b.tsv", weight=2.5)
    made = run(tmp_path, first, second, keep_text=True)
    assert len(made) == 3
    assert made.columns["source"][0].tolist() == [words.id("a"), words.id("b")]
    assert made.columns["target"].lengths.tolist() == [1, 3, 1]
    assert list(made.text["target"]) == ["c", "e f g", "i"]
    assert made.corpus.tolist() == [0, 0, 1]
    assert made.number.tolist() == [1, 3, 1]
    assert made.weights == [1.0, 2.5]


def test_empty_lines_dropped_and_counted(tmp_path: Path):
    made = run(tmp_path, tsv(tmp_path, [("a", "b"), ("", "c"), ("d", "  \u3000"), ("", ""), ("e", "f")]))
    assert made.report["read"] == 5
    assert made.report["kept"] == 2
    assert made.report["corpora"][0]["dropped"]["empty"] == 3
    assert made.report_lines()[0].endswith("a.tsv: 2 of 5 rows kept; dropped 3 empty")


def test_every_filter_counts_what_it_drops(tmp_path: Path):
    rows = [
        ("a b", "c d"),
        ("a b", "c d"),  # duplicate
        ("e f", "e f"),  # identical
        ("a b c d e", "f g"),  # ratio 2.5
        ("x", "y z"),  # short
        ("l " * 7, "l " * 6),  # long
        ("k\0k", "m m"),  # NUL
    ]
    made = run(tmp_path, tsv(tmp_path, rows), filters=Filters(5, 2, 2.0, True, True, "drop"))
    entry = made.report["corpora"][0]
    assert entry["dropped"] == {"empty": 0, "identical": 1, "duplicate": 1, "short": 1, "long": 1, "ratio": 1}
    assert (entry["read"], entry["kept"], entry["nul"]) == (7, 2, 1)
    assert json.loads((made.folder / "report.json").read_text()) == made.report


def test_over_long_rows_can_be_cut(tmp_path: Path):
    made = run(tmp_path, tsv(tmp_path, [("a " * 9, "b"), ("c", "d")]), filters=Filters(4, long="truncate"))
    assert made.columns["source"].lengths.tolist() == [4, 1]
    assert made.report["corpora"][0]["truncated"] == 1


def test_very_long_line(tmp_path: Path):
    made = run(tmp_path, tsv(tmp_path, [("word " * 20_000, "b"), ("c", "d")]))
    assert made.report["corpora"][0]["dropped"]["long"] == 1
    assert made.number.tolist() == [2]


def test_duplicates_across_chunks_and_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    rows = [(f"s{i % 10}", f"t{i % 10}") for i in range(25)]
    made = run(tmp_path, tsv(tmp_path, rows), tsv(tmp_path, [("s3", "t3"), ("s3", "t4")], "b.tsv"))
    assert len(made) == 11
    assert [e["dropped"]["duplicate"] for e in made.report["corpora"]] == [15, 1]


def test_sides_are_not_confused_by_where_they_join(tmp_path: Path):
    assert len(run(tmp_path, tsv(tmp_path, [("a b", "c"), ("a", "b c")]))) == 2


def test_seen_agrees_with_a_set():
    rng = np.random.default_rng(0)
    seen, plain = HashSet(), set()
    for _ in range(60):
        hashes = rng.integers(0, 5000, 200).astype(np.uint64)
        expected = []
        for h in hashes.tolist():
            expected.append(h not in plain)
            plain.add(h)
        assert seen.add(hashes).tolist() == expected
    assert sum(map(len, seen.runs)) == len(plain)
    assert len(seen.runs) <= 13


def test_nothing_left_is_an_error_with_counts(tmp_path: Path):
    with pytest.raises(RegardError, match=r"no rows are left .*a\.tsv: 0 of 2 rows kept; dropped 1 empty, 1 long"):
        run(tmp_path, tsv(tmp_path, [("", "b"), ("c " * 300, "d")]))
    assert not list((tmp_path / "cache").glob("[!.]*"))


# --- reuse ---


def test_reused_only_when_nothing_changed(tmp_path: Path):
    words = Words()
    corpus = tsv(tmp_path, [("a", "b"), ("c", "d")])

    def key(filters: Filters = PLAIN, tokenizer: Words = words, **options: Any) -> str:
        columns = {"source": tokenizer, "target": tokenizer}
        return prepare_corpora(
            [options.pop("corpus", corpus)], columns, filters, tmp_path / "cache", **options
        ).fingerprint

    first, calls = key(), words.calls
    assert key() == first
    assert words.calls == calls, "the second time must not encode again"
    shutil.copy(tmp_path / "a.tsv", tmp_path / "moved.tsv")
    assert key(corpus=Corpus(path=str(tmp_path / "moved.tsv"), weight=3.0)) == first
    others = [
        key(Filters(max_length=9)),
        key(tokenizer=Words(999)),
        key(keep_text=True),
        key(corpus=Corpus(path=corpus.path, columns=[2, 1])),
    ]
    tsv(tmp_path, [("a", "b"), ("c", "e")])
    others.append(key())
    assert len({first, *others}) == 6


def test_weights_are_those_asked_for_even_when_reused(tmp_path: Path):
    run(tmp_path, tsv(tmp_path, [("a", "b")]))
    assert run(tmp_path, tsv(tmp_path, [("a", "b")], weight=0.5)).weights == [0.5]


def test_damaged_form_is_made_again(tmp_path: Path):
    corpus = tsv(tmp_path, [("a", "b"), ("c", "d")])
    made = run(tmp_path, corpus)
    (made.folder / "ids" / "source" / "flat.uint16").write_bytes(b"")
    assert run(tmp_path, corpus).columns["source"].lengths.tolist() == [1, 1]


def test_wide_vocabulary(tmp_path: Path):
    made = run(tmp_path, tsv(tmp_path, [("a", "b")]), size=200_000)
    assert made.columns["source"].flat.dtype == np.uint32
    assert made.columns["source"][0][0] == Words(200_000).id("a")


# --- faults ---


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RaggedWriter, "_write", full)
    with pytest.raises(RegardError, match=r"cannot be written .No space left on device.; make room"):
        run(tmp_path, tsv(tmp_path, [("a", "b")]))
    assert not list((tmp_path / "cache").glob(".making*"))


def test_cache_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "cache").write_text("a file is in the way")
    with pytest.raises(RegardError, match="cannot be written"):
        run(tmp_path, tsv(tmp_path, [("a", "b")]))


WORKER = """
    import sys, time
    from pathlib import Path
    from regard.data.config import Corpus, Filters
    from regard.data.prepared import prepare_corpora
    sys.path.insert(0, {tests!r})
    from words import Words

    class Slow(Words):
        def encode_batch(self, texts):
            Path({folder!r}, "encoding").touch()
            time.sleep({delay})
            return super().encode_batch(texts)

    words = Slow()
    made = prepare_corpora([Corpus(path={path!r})], {{"source": words, "target": words}}, Filters(), Path({cache!r}))
    print(words.calls, made.fingerprint, made.columns["source"].flat.tolist())
"""


def worker(tmp_path: Path, delay: float) -> subprocess.Popen[str]:
    code = WORKER.format(
        tests=str(Path(__file__).parent),
        folder=str(tmp_path),
        delay=delay,
        path=str(tmp_path / "a.tsv"),
        cache=str(tmp_path / "cache"),
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_two_processes_share_the_work(tmp_path: Path):
    tsv(tmp_path, [("a b", "c"), ("d", "e")])
    both = [worker(tmp_path, 0.5) for _ in range(2)]
    outputs = sorted(process.communicate(timeout=60)[0].split(" ", 1) for process in both)
    assert [calls for calls, _ in outputs] == ["0", "2"], "one encodes, the other waits and reads"
    assert outputs[0][1] == outputs[1][1]


def test_what_a_killed_process_left_is_swept(tmp_path: Path):
    corpus = tsv(tmp_path, [("a b", "c"), ("d", "e")])
    process = worker(tmp_path, 60)
    for _ in range(600):
        if (tmp_path / "encoding").exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert len(list((tmp_path / "cache").glob(".making-*"))) == 1
    assert len(run(tmp_path, corpus, filters=Filters(max_length=50))) == 2  # another form sweeps too
    assert not list((tmp_path / "cache").glob(".making-*"))
    assert len(run(tmp_path, corpus)) == 2


# --- memory ---


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path):
    """A 64 MB corpus in chunks of 2,000 lines: held as lines it would take over 100 MB."""
    with open(tmp_path / "a.tsv", "w") as file:
        for i in range(100_000):
            file.write(f"{i} {'word ' * 63}\t{i} {'wort ' * 62}\n")
    code = f"""
        from pathlib import Path
        from regard.data import prepared
        from regard.data.config import Corpus, Filters

        class Lengths:
            size, fingerprint = 1000, "lengths"
            def encode_batch(self, texts): return [[1] * (len(t) // 5) for t in texts]

        prepared.CHUNK = 2000
        def peak():  # MiB; ru_maxrss would carry over from the process that started this one
            status = Path("/proc/self/status").read_text()
            return int(status.split("VmHWM:")[1].split()[0]) / 1024

        before = peak()
        columns = {{"source": Lengths(), "target": Lengths()}}
        corpus = Corpus(path={str(tmp_path / "a.tsv")!r})
        made = prepared.prepare_corpora([corpus], columns, Filters(), Path({str(tmp_path / "c")!r}))
        print(len(made), round(peak() - before))
        """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, env=environment
    ).stdout
    rows, grown = map(int, out.split())
    assert rows == 100_000
    assert grown < 40, f"{grown} MiB more than before"


# --- weights ---


def test_weighted_index(tmp_path: Path):
    first = tsv(tmp_path, [(f"a{i}", "b") for i in range(40)], weight=2.25)
    second = tsv(tmp_path, [(f"c{i}", "d") for i in range(100)], "b.tsv", weight=0.3)
    made = run(tmp_path, first, second)
    rows = epoch_rows(made, seed=1, epoch=0)
    times = np.bincount(rows, minlength=140)
    assert set(times[:40]) == {2, 3}
    assert times[:40].sum() == 90
    assert times[40:].sum() == 30
    assert times[40:].max() == 1
    assert np.array_equal(rows, epoch_rows(made, seed=1, epoch=0))
    assert not np.array_equal(rows, epoch_rows(made, seed=1, epoch=1))


def test_weight_one_is_every_row_and_zero_is_none(tmp_path: Path):
    made = run(tmp_path, tsv(tmp_path, [("a", "b"), ("c", "d")]))
    assert epoch_rows(made, 0, 0).tolist() == [0, 1]
    made.weights = [0.0]
    with pytest.raises(RegardError, match="leave no row"):
        epoch_rows(made, 0, 0)
