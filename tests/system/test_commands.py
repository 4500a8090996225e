"""The commands as a user or a script meets them: help, text on stdout alone, JSON, pipes."""

import json
import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard import __version__
from regard.api import load
from regard.cli import main as cli
from regard.decoding import Beam
from regard.errors import RegardError
from tests.training import toy

COMMANDS = ["quickstart", "train", "evaluate", "translate", "score", "average", "import", "export", "info"]
COMMANDS += ["data list", "data get", "generate", "chat", "fill", "embed", "classify", "tag", "answer", "choose"]
COMMANDS += ["look", "serve", "tokenise"]
ARGUMENTS = [("input", "text"), ("output", "link")]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """`regard ...` in this process, which must succeed and say nothing else: what it printed."""

    def run(*arguments: Any, stdin: str | bytes = "") -> str:
        given = tmp_path / "stdin"
        given.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        capfd.readouterr()
        with open(given, encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capfd.readouterr()
        assert not ended.value.code, err
        assert err == "" or arguments[0] == "average"
        return out

    return run


def test_help_is_quick() -> None:
    """A promise to users: 0.3 s. The median of five processes, of their own time: a machine may be busy."""
    times = []
    for _ in range(5):
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = toy.regard("--help", env={})  # by an interpreter of its own
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime)
        assert found.returncode == 0
    assert all(name.split()[0] in found.stdout for name in COMMANDS)
    assert statistics.median(times) < 0.3, times


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Any, name: str) -> None:
    out = command(*name.split(), "--help")
    assert f"regard {name}" in out.replace(Path(sys.argv[0]).name, "regard")
    assert "--help" in out


def test_train_help_lists_every_key(command: Any) -> None:
    out = command("train", "--help")
    schedule, search = "training.schedule(noam).warmup", "decoding"
    for key in ("data.train", "text(bpe).size", "model(transformer).layers", schedule, search, "seed"):
        assert f"  {key}  " in out, key
    assert "decoding(beam).size  int  [5]" in out
    assert "model(transformer).layers  int  [6]\n      of the encoder, and of the decoder unless" in out
    assert "Shipped recipes: " in out


def test_translate_from_stdin(toy_run: Path) -> None:
    """A process of its own: text alone on stdout, one line for each, empty ones too."""
    found = toy.regard("translate", toy_run, "--device", "cpu", stdin="w1 w2\n\nw3\r\n  \nw4")
    assert found.returncode == 0
    assert found.stderr == ""
    lines = found.stdout.split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False, True, False]
    assert lines[:5] == load(toy_run, "cpu").translate(["w1 w2", "", "w3", "", "w4"])


def test_translate_writes_alignments(toy_run: Path, tmp_path: Path, command: Any) -> None:
    """A line of links for each output: every target word once, in order, with a source word that exists."""
    path = tmp_path / "links"
    text = "w1 w2 w3\n\nw4 w5\n"
    given = ("translate", toy_run, "--device", "cpu", "--alignments", path)
    plain = command("translate", toy_run, "--device", "cpu", stdin=text)
    assert command(*given, "--layer", 1, "--head", 2, stdin=text) == plain
    rows = path.read_text().split("\n")
    assert len(rows) == 4
    assert rows[1] == rows[3] == ""
    for row, output, words in ((rows[0], plain.split("\n")[0], 3), (rows[2], plain.split("\n")[2], 2)):
        links = [tuple(map(int, link.split("-"))) for link in row.split()]
        assert [target for _, target in links] == list(range(len(output.split())))
        assert all(0 <= source < words for source, _ in links)
    command(*given, "--beam", 3, "--nbest", 2, stdin=text)
    assert len(path.read_text().split("\n")) == 6  # two for a line, one for the empty one


@pytest.mark.parametrize(
    "model, options, said",
    [
        ("transformer", ["--layer", 9], "there is no layer 9 to align by; the model attends to the source in 1 to 1"),
        ("transformer", ["--head", 2, "--head", 99], "there is no head 99; the layer has heads 1 to 2"),
        ("bytenet", [], "the model bytenet has no attention to the source to align by"),
    ],
)
def test_alignments_that_cannot_be_are_refused_before_decoding(
    model: str, options: list[Any], said: str, toy_run: Path, tmp_path: Path
) -> None:
    run, links = toy_run, tmp_path / "links"
    if model == "bytenet":
        run = tmp_path / "run"
        toy.write_corpus(tmp_path, train=40, valid=5)
        regard.train(toy.recipe(tmp_path, steps=1) | {"model": {"kind": model, "size": 8}}, run, device="cpu")
    links.write_text("before\n")
    found = toy.regard("translate", run, "--device", "cpu", "--alignments", links, *options, stdin="w1 w2 w3\n")
    assert (found.returncode, found.stdout, found.stderr) == (2, "", f"regard: {said}\n")
    assert links.read_text() == "before\n"


def test_translate_by_guessing(toy_run: Path, tmp_path: Path) -> None:
    """The same lines; what came of the guesses stands on stderr and in a file; nonsense is one sentence."""
    given, stats = ("translate", toy_run, "--device", "cpu"), tmp_path / "stats.json"
    plain = toy.regard(*given, "--beam", 1, stdin="w1 w2\n\nw3\n").stdout
    found = toy.regard(*given, "--draft", toy_run, "--stats", stats, stdin="w1 w2\n\nw3\n")
    assert found.stdout == plain
    assert "regard: speculative search: " in found.stderr
    assert json.loads(stats.read_text())["acceptance_by_position"] == [1.0] * 4
    found = toy.regard(*given, "--search", "speculative", "--beam", 4, stdin="w1\n")
    assert (found.returncode, found.stdout) == (2, "")
    assert "--beam keeps 4 hypotheses, and speculative search one" in found.stderr


def test_translate_with_scores_nbest_and_json(toy_run: Path, command: Any) -> None:
    translator = load(toy_run, "cpu")
    options = translator.nbest(["w1 w2 w3"], 3, Beam(size=3))[0]
    text = "w1 w2 w3\n\n"
    assert command("translate", toy_run, "--beam", 3, "--scores", "--device", "cpu", stdin=text).splitlines() == [
        f"{options[0].score:.4f}\t{options[0].text}",
        "\t",
    ]
    assert command("translate", toy_run, "--beam", 3, "--nbest", 3, "--device", "cpu", stdin=text).splitlines() == [
        *(f"1\t{o.score:.4f}\t{o.text}" for o in options),
        "2\t\t",
    ]
    found = [
        json.loads(line)
        for line in command(
            "translate", toy_run, "--beam", 3, "--nbest", 3, "--json", "--device", "cpu", stdin=text
        ).splitlines()
    ]
    assert [entry["line"] for entry in found] == [1, 2]
    assert found[1]["translations"] == []
    assert [t["text"] for t in found[0]["translations"]] == [o.text for o in options]
    assert found[0]["translations"][0]["log_probability"] == pytest.approx(options[0].log_probability, abs=1e-5)


def test_samples_follow_their_seed(toy_run: Path, command: Any) -> None:
    ask = ("translate", toy_run, "--sample", "--device", "cpu", "--seed")
    first, again, other = (command(*ask, seed, stdin="w1 w2 w3 w4\n" * 5) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    "options, said",
    [
        (["--temperature", "0.5"], "--temperature is for drawing words at random; add --sample"),
        (["--sample", "--beam", "4"], "--sample draws words and --beam searches; give one of them"),
        (["--layer", "1"], "--layer and --head choose what --alignments shows; give --alignments FILE, too"),
    ],
)
def test_options_that_would_do_nothing(toy_run: Path, options: list[str], said: str) -> None:
    found = toy.regard("translate", toy_run, "--device", "cpu", *options, stdin="w1\n")
    assert (found.returncode, found.stdout, found.stderr) == (2, "", f"regard: {said}\n")


def test_odd_bytes_on_stdin(toy_run: Path, command: Any) -> None:
    """A BOM, CRLF and NUL are no text; what is not UTF-8 is refused by line."""
    plain = command("translate", toy_run, "--device", "cpu", stdin="w1 w2\nw3 w4\n")
    assert command("translate", toy_run, "--device", "cpu", stdin=b"\xef\xbb\xbfw1 w2\r\nw3\0w4\r\n") == plain
    assert command("translate", toy_run, "--device", "cpu", stdin="") == ""
    found = toy.regard("translate", toy_run, "--device", "cpu", stdin=b"w1\n\xff\xfe\n")
    assert (found.returncode, found.stderr) == (2, "regard: standard input, line 2: not UTF-8\n")


def test_score(toy_run: Path, command: Any, tmp_path: Path) -> None:
    pairs = [("w1 w2", "W2 W1"), ("", ""), ("w3", "W3 W3 W3")]
    expected = load(toy_run, "cpu").score(pairs)
    text = "".join(f"{s}\t{t}\n" for s, t in pairs)
    printed = [float(line) for line in command("score", toy_run, "--device", "cpu", stdin=text).splitlines()]
    assert printed == pytest.approx([s for s, _ in expected], abs=1e-5)
    assert sum(printed) == pytest.approx(sum(s for s, _ in expected), abs=1e-4)
    (tmp_path / "s").write_text("".join(f"{s}\n" for s, _ in pairs))
    (tmp_path / "t").write_text("".join(f"{t}\n" for _, t in pairs))
    out = command("score", toy_run, "--source", tmp_path / "s", "--target", tmp_path / "t", "--json", "--device", "cpu")
    found = [json.loads(line) for line in out.splitlines()]
    assert [(e["line"], e["tokens"]) for e in found] == [(1, 3), (2, 1), (3, 4)]
    assert [e["log_probability"] for e in found] == pytest.approx(printed, abs=1e-5)


def test_score_without_a_tab(toy_run: Path) -> None:
    found = toy.regard("score", toy_run, "--device", "cpu", stdin="w1\tW1\nw2 W2\n")
    assert found.returncode == 2
    assert found.stderr == "regard: standard input, line 2: there is no tab between source and target\n"


def test_evaluate_json(toy_run: Path, command: Any) -> None:
    found = json.loads(command("evaluate", toy_run, "--json", "--device", "cpu"))
    assert found["lines"] == 30
    assert found["metrics"].keys() == {"bleu", "chrf", "ter", "exact_match", "loss", "perplexity"}
    for name in ("bleu", "chrf", "ter"):
        assert "version:" in found["metrics"][name]["signature"]
    saved = json.loads((toy_run / "results.json").read_text())["valid"]["metrics"]
    for name, entry in found["metrics"].items():
        assert entry["value"] == pytest.approx(saved[name]["value"], rel=1e-5), name


def test_evaluate_for_people_and_on_other_files(toy_run: Path, command: Any, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("w1\nw2\n")
    outputs = load(toy_run, "cpu").translate(["w1", "w2"])
    (tmp_path / "r").write_text("".join(f"{line}\n" for line in outputs))
    out = command("evaluate", toy_run, "--source", tmp_path / "s", "--reference", tmp_path / "r", "--device", "cpu")
    assert "2 lines" in " ".join(out.split())  # a title wraps
    assert "exact match %" in out
    assert "100.00" in out


def test_average_of_the_last(toy_run: Path, command: Any, tmp_path: Path) -> None:
    command("average", toy_run, "--last", 2, "--out", tmp_path / "mean")
    parts = [load_file(toy_run / "checkpoints" / f"step-{n}" / "model.safetensors") for n in (38, 40)]
    for name, value in load_file(tmp_path / "mean" / "model.safetensors").items():
        torch.testing.assert_close(value, (parts[0][name] + parts[1][name]) / 2)
    assert len(load(tmp_path / "mean", "cpu").translate(["w1"])) == 1
    command("average", toy_run / "checkpoints/step-38", toy_run / "checkpoints/step-40", "--out", tmp_path / "same")
    assert (tmp_path / "same/model.safetensors").read_bytes() == (tmp_path / "mean/model.safetensors").read_bytes()


def test_info(toy_run: Path, command: Any) -> None:
    found = json.loads(command("info", toy_run, "--json"))
    assert (found["step"], found["of"], found["task"]) == (40, 40, "translation en→de")
    assert found["parameters"] == sum(p.numel() for p in load(toy_run, "cpu").model.parameters())
    assert "bleu" in found["valid"]
    shown = command("info", toy_run)
    assert "translation en→de" in shown
    assert "40 / 40" in shown
    assert "1 thread " in shown
    here = json.loads(command("info", "--json"))
    assert (here["version"], here["torch"]) == (__version__, torch.__version__)
    assert __version__ in command("info")


def test_data_list(command: Any) -> None:
    found = {entry["name"]: entry for entry in json.loads(command("data", "list", "--json"))}
    assert found["embedded"]["found"] == "built in"
    assert "de" in found["multi30k"]["languages"]
    assert all(entry["found"] or entry["get"] or entry["note"] for entry in found.values())


def test_train_as_a_script_sees_it(tmp_path: Path) -> None:
    """Progress on stderr; on stdout the result alone. Then the same command finds it finished."""
    toy.write_corpus(tmp_path)
    path = toy.write_recipe(tmp_path, steps=2)
    found = toy.regard("train", path, "--out", tmp_path / "run", "--device", "cpu", "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["steps"] == 2
    assert "400 rows kept" in found.stderr
    assert "dropped" in found.stderr
    assert "done: step 2 is in" in found.stderr


def piped(arguments: list[str], stdin: int) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "regard", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_pipe_that_closes_early(toy_run: Path, tmp_path: Path, source: str) -> None:
    """`| head -1`: no traceback, and no blame on the input."""
    (tmp_path / "in").write_text("w1\n" * 1500)  # as JSON more than a pipe holds
    given = ["-i", str(tmp_path / "in")] if source == "file" else []
    with open(tmp_path / "in") as file:
        process = piped(["translate", str(toy_run), "--device", "cpu", "--json", *given], file.fileno())
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["line"] == 1
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert err == ""


@pytest.mark.parametrize(("name", "line"), [("translate", b"w1 w2\n"), ("score", b"w1\tW1\n")])
def test_a_program_that_waits_for_each_answer(toy_run: Path, name: str, line: bytes) -> None:
    """A line, its answer, the next line; a line that cannot be read takes back no answer, and has its number."""
    command = [sys.executable, "-m", "regard", name, str(toy_run), "--device", "cpu"]
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, bufsize=0, **ends) as process:  # type: ignore[call-overload]
        answers = []
        for _ in range(3):
            process.stdin.write(line)
            if not select.select([process.stdout], [], [], 60)[0]:
                process.kill()
                pytest.fail("no answer while the input is open")
            answers.append(process.stdout.readline())
        out, err = process.communicate(b"\xff\n", timeout=60)
    assert answers[0].strip()
    assert answers == [answers[0]] * 3
    assert (process.returncode, out, err) == (2, b"", b"regard: standard input, line 4: not UTF-8\n")


@pytest.mark.parametrize("arguments", [["info", "--mechanisms"], ["info"], ["data", "list"]])
def test_tables_to_a_closed_pipe(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "regard", *arguments]
    found = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (found.returncode, found.stderr) == (141, "")


def test_no_stdout_at_all() -> None:
    command = f"exec {sys.executable} -m regard info >&-"
    found = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def waits_for(pid: int) -> str:
    """Where in the kernel a process sleeps, such as pipe_read; nothing while it computes."""
    return Path(f"/proc/{pid}/wchan").read_text()


def test_ctrl_c_while_translating(toy_run: Path) -> None:
    read, write = os.pipe()
    process = piped(["translate", str(toy_run), "--device", "cpu"], read)
    os.close(read)
    deadline = time.monotonic() + 60
    while "pipe" not in waits_for(process.pid) and time.monotonic() < deadline:  # imports may swallow a signal
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    os.close(write)
    assert process.returncode == 130
    assert (out, err) in (("", ""), ("", "regard: interrupted\n"))


def test_output_is_never_the_input_and_a_mistake_empties_nothing(toy_run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("w1 w2\n\nw3\n", encoding="utf-8")
    found = toy.regard("translate", toy_run, "-i", text, "-o", text)
    assert found.returncode == 2
    assert found.stderr == f"regard: {text} would overwrite the input {text}; give another name\n"
    assert toy.regard("translate", toy_run, "-i", tmp_path / "missing", "-o", text).returncode == 2
    assert text.read_text(encoding="utf-8") == "w1 w2\n\nw3\n"
    assert [p.name for p in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("name", ["translate", "fill", "embed", "classify", "tag", "answer", "choose"])
def test_every_command_refuses_it_before_the_model_is_loaded(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "text").write_text("w1\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("text")
    monkeypatch.setattr(sys, "argv", ["regard", name, str(tmp_path), *(f"--{k}={tmp_path / v}" for k, v in ARGUMENTS)])
    with pytest.raises(RegardError, match="would overwrite the input"):
        cli.app(standalone_mode=False)


def test_a_shell_may_give_pipes_for_files(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("w1 w2\nw3\n", encoding="utf-8")
    asked = f"'{sys.executable}' -m regard translate '{toy_run}' -i in --device cpu"
    line = f"{asked} -o >(cat > hyp) --alignments >(cat > links) && {asked} -o /dev/stdout && {asked} -o /dev/full"
    found = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.stderr == "regard: /dev/full: cannot be written (No space left on device)\n"
    assert found.returncode == 2
    assert Path("/dev/full").is_char_device()
    assert found.stdout == (tmp_path / "hyp").read_text(encoding="utf-8")
    assert found.stdout.count("\n") == 2
    assert (tmp_path / "links").read_text(encoding="utf-8").count("\n") == 2


def test_average_refuses_a_folder_with_something_in_it(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("precious", encoding="utf-8")
    found = toy.regard("average", toy_run, "--last", "2", "--out", tmp_path)
    assert found.returncode == 2
    assert "is not empty" in found.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
