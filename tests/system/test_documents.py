"""`regard translate --document` and `regard summarise` as commands: killed and resumed, refused, and what they say."""

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import regard
from regard.cli.documents.resumed import ResumedOutput
from regard.cli.main import app
from regard.errors import RegardError
from regard.predict.documents import translate as documents

TEXT = "# W1 w2\n\n" + "".join(
    f"W{n % 20} w{n * 7 % 20} `w3` w4. W{n % 11}\nw5 w{n % 5} w6.\n\n```\nw{n}\n```\n\n" for n in range(60)
)


def run(*arguments: Any) -> tuple[str, str]:
    found = CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])
    if found.exception:
        raise found.exception
    return found.stdout, found.stderr


def translate_in_small_windows(arguments: list[str]) -> None:
    documents.WINDOW_SENTENCES = 12
    os.environ["REGARD_LANG"] = "en"
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    app(arguments, standalone_mode=False)


def test_a_killed_run_goes_on_to_the_same_bytes(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "WINDOW_SENTENCES", 12)
    source, whole, out = tmp_path / "doc.md", tmp_path / "whole.md", tmp_path / "out.md"
    source.write_text(TEXT)
    given = ["translate", toy_run, "--document", source, "--beam", 1]
    run(*given, "--output", whole)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.cli.main", "regard.cli.documents.translate", "regard.api"])
    part, state, sizes = tmp_path / "out.md.part", tmp_path / "out.md.part.json", [0]
    for _ in range(2):
        arguments = [*map(str, given), "--output", str(out), "--device", "cpu"]
        process = context.Process(target=translate_in_small_windows, args=(arguments,))
        process.start()
        while process.is_alive() and (not state.exists() or json.loads(state.read_text())["bytes"] <= sizes[-1]):
            time.sleep(0.002)
        process.kill()
        process.join()
        assert not out.exists()
        sizes.append(json.loads(state.read_text())["bytes"])
    assert 0 < sizes[1] < sizes[2] < len(whole.read_bytes())
    assert part.read_bytes()[: sizes[2]] == whole.read_bytes()[: sizes[2]]
    part.write_bytes(part.read_bytes() + b"half a senten")  # what a kill may leave
    said = run(*given, "--output", out)[1]
    assert f"out.md.part has {sizes[2]:,} bytes already; going on behind them" in said
    assert out.read_bytes() == whole.read_bytes()
    assert not part.exists()
    assert not state.exists()


def test_another_document_or_option_is_not_mixed_in(toy_run: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "doc.md", tmp_path / "out.md"
    source.write_text("W1 w2.\n")
    (tmp_path / "out.md.part").write_bytes(b"W1")
    state = {"format": 1, "key": "other", "bytes": 2, "counts": {"blocks": 1}}
    (tmp_path / "out.md.part.json").write_text(json.dumps(state))
    given = ["translate", toy_run, "--document", source, "--output", out]
    with pytest.raises(RegardError, match="was begun from another document, by another model or with other options"):
        run(*given)
    (tmp_path / "out.md.part.json").write_text("{")
    with pytest.raises(RegardError, match=r"out\.md\.part\.json: damaged; delete it and .*out\.md\.part to begin anew"):
        run(*given)
    assert (tmp_path / "out.md.part").read_bytes() == b"W1"  # nothing is lost


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    """The second is refused before it has touched what the first, which saved nothing yet, has written."""
    first, second = (ResumedOutput(tmp_path / "out.md", "key") for _ in range(2))
    with first.open() as file:
        file.write(b"first window")
        file.flush()
        with pytest.raises(RegardError, match=r"out\.md\.part is being written by another process"), second.open():
            pass
        file.write(b", second window")
    assert (tmp_path / "out.md").read_bytes() == b"first window, second window"


def test_it_goes_to_stdout_and_says_what_it_did(toy_run: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "doc.txt", tmp_path / "out.txt"
    source.write_text("W1 w2.\n\n" + "w3 " * 300 + ".\n")
    text, said = run("translate", toy_run, "--document", source, "--beam", 1)
    assert text.count("\n") == 3
    assert "1 sentence(s) were longer than the model reads; 0 of 301 pieces were dropped" in said
    line = run(
        "translate", toy_run, "--document", source, "--beam", 1, "-o", out, "--json", "--long", "truncate"
    )[0]  # fmt: skip
    assert json.loads(line) == {
        "document": str(source), "sentences": 2, "in_parts": 0, "long": {"sentences": 1, "tokens": 301, "dropped": 45},
    }  # fmt: skip
    assert out.read_text().splitlines()[0] == regard.load(toy_run, "cpu").translate(["W1 w2."], beam=1)[0]


def test_empty_documents_and_mistakes(toy_run: Path, tmp_path: Path) -> None:
    source = tmp_path / "doc.md"
    source.write_bytes(b"")
    text, said = run("translate", toy_run, "--document", source)
    assert text == ""
    assert f"{source}: there is no prose to translate" in said
    source.write_bytes(b"a b\nc \xff d\n")
    with pytest.raises(RegardError, match=r"doc\.md, line 2: not valid UTF-8 \(byte 0xff\)"):
        run("translate", toy_run, "--document", source)
    assert "became U+FFFD 1 time" in run("translate", toy_run, "--document", source, "--errors", "replace")[1]
    source.write_text("W1\n")
    for options, message in (
        (["--input", source], "--input belongs to lines, and --document to a whole text"),
        (["--nbest", 2], "a document has one translation; leave out --nbest"),
        (["--json"], "the translation goes to stdout too; give --output FILE"),
        (["--output", source], "would overwrite the input"),
        (["--form", "html"], "form is 'html'; write text or markdown"),
        (["--long", "cut"], "--long is 'cut'; known: truncate"),
        (["--long", "refuse", "--output", tmp_path / "no" / "out.md"], "no"),
    ):
        with pytest.raises(RegardError, match=message):
            run("translate", toy_run, "--document", source, *options)
    for options in (["--form", "text"], ["--context", 2], ["--by", "paragraph"]):
        with pytest.raises(RegardError, match=f"{options[0]} says how a document is read; give --document FILE, too"):
            run("translate", toy_run, "--input", source, *options)
    with pytest.raises(RegardError, match="there is no such file"):
        run("translate", toy_run, "--document", tmp_path / "none.md")


# --- summaries ------------------------------------------------------------------------------------------------------


def test_summaries_of_a_long_document(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "doc.txt"
    source.write_text("\n\n".join(f"W{n % 9} w2 w3\nw4 w5 w{n % 7}." for n in range(80)))  # 480 words, 256 at once
    given = ["summarise", toy_run, "--document", source, "--beam", 1]
    model = regard.load(toy_run, "cpu")
    found = json.loads(run(*given, "--json")[0])
    paragraphs = [" ".join(part.split()) for part in source.read_text().split("\n\n")]
    kept = " ".join(paragraphs[n - 1] for n in found["long"]["kept"])
    assert found["summary"] == model.translate([kept], beam=1)[0]
    assert found["long"]["dropped"] == 480 - len(kept.split())
    lines = run(*given, "--long", "segments")[0].splitlines()
    assert lines == model.translate([" ".join(paragraphs[:42]), " ".join(paragraphs[42:])], beam=1)
    rows = [json.loads(line) for line in run(*given, "--long", "segments", "--json")[0].splitlines()]
    assert [(row["segment"], row["tokens"], row["summary"]) for row in rows] == [(1, 252, lines[0]), (2, 228, lines[1])]
    with pytest.raises(RegardError, match="line 1 has 480 pieces; the model was trained on at most 256"):
        run(*given, "--long", "refuse")
    monkeypatch.setattr("regard.cli.documents.summarise.LARGEST", 1000)
    with pytest.raises(RegardError, match="and 1,000 are read as a whole; summarise it in parts: --long segments"):
        run(*given)
    source.write_text("")
    assert run(*given)[0] == "\n"
