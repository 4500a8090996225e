"""`regard import`, `export` and `--engine` as a user types them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main as cli
from tests.interop import toy
from tests.interop.opus import LINES, make_trained

pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")

SOURCES = [LINES[0][0], "", LINES[1][0], LINES[2][0]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """`regard ...` in this process: its exit code, what it printed, and what it said."""

    def run(*arguments: Any, stdin: str = "") -> tuple[int, str, str]:
        (tmp_path / "stdin").write_text(stdin, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        capfd.readouterr()
        with open(tmp_path / "stdin", encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return run


def test_an_opus_model_from_its_folder_to_int8(command: Any, tmp_path: Path) -> None:
    make_trained(tmp_path / "theirs", steps=30)
    code, out, said = command("import", "hf", tmp_path / "theirs", tmp_path / "run")
    assert (code, out) == (0, "")
    assert said == f"{tmp_path / 'run'}: 0.03 million parameters, translation en→de\n"
    text = "\n".join(SOURCES) + "\n"
    code, own, _ = command("translate", tmp_path / "run", "--beam", 3, stdin=text)
    code, fast, said = command(
        "translate", tmp_path / "run", "--beam", 3, "--engine", "ct2", "--precision", "float32", stdin=text
    )
    assert (code, said, fast) == (0, "", own)
    assert own.count("\n") == len(SOURCES)
    assert own.splitlines()[1] == ""
    code, told, _ = command("translate", tmp_path / "run", "--engine", "ct2", "--nbest", 2, "--json", stdin=text)
    assert [len(json.loads(line)["translations"]) for line in told.splitlines()] == [2, 0, 2, 2]
    assert (tmp_path / "run" / "ct2-int8" / "model.bin").exists()
    for name, n in (("a.en", 0), ("a.de", 1)):
        (tmp_path / name).write_text("".join(f"{pair[n]}\n" for pair in LINES[:20]))
    given = ("--source", tmp_path / "a.en", "--reference", tmp_path / "a.de", "--json", "--beam", 2)
    code, report, _ = command("evaluate", tmp_path / "run", *given, "--engine", "ct2", "--precision", "float32")
    code, usual, _ = command("evaluate", tmp_path / "run", *given)
    assert json.loads(report)["metrics"] == json.loads(usual)["metrics"]


def test_mistakes_are_one_sentence_and_two(command: Any, tmp_path: Path) -> None:
    toy.make(tmp_path / "run", residual="none")
    for arguments, sentence in (
        (("import", "hf", tmp_path, tmp_path / "x"), f"{tmp_path}: not a Hugging Face checkpoint"),
        (("import", "onnx", tmp_path, tmp_path / "x"), "regard import onnx: there is no such form"),
        (("export", "onnx", tmp_path / "run", tmp_path / "x"), "regard export onnx: there is no such form"),
        (("export", "hf", tmp_path / "run", tmp_path / "x"), f"{tmp_path / 'run'}: Hugging Face cannot express"),
        (("export", "ct2", tmp_path / "run", tmp_path / "x"), f"{tmp_path / 'run'}: CTranslate2 cannot express"),
        (("export", "hf", tmp_path, tmp_path / "x"), f"{tmp_path}: not a trained model"),
        (("translate", tmp_path / "run", "--engine", "ct2"), f"{tmp_path / 'run'}: CTranslate2 cannot express"),
        (("translate", tmp_path / "run", "--engine", "ct3"), "--engine is 'ct3'; did you mean ct2?"),
    ):
        code, out, said = command(*arguments, stdin="A line.\n")
        assert (code, out) == (2, "")
        assert said.startswith(f"regard: {sentence}")
        assert said.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_without_ctranslate2_it_says_what_to_install(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.make(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    code, _, said = command("translate", tmp_path / "run", "--engine", "ct2", stdin="A line.\n")
    assert (code, said) == (2, 'regard: CTranslate2 is not installed; run pip install "regard[fast]"\n')
