"""`regard look` as a user types it: a page, a picture, JSON; and sentences for what does not work."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.errors import RegardError
from tests.tasks.toys import command


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_page_is_written(toy_run: Path, tmp_path: Path) -> None:
    assert command("look", toy_run, "w1 w2") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["look.html"]
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "http" not in page.split("<style>")[0].replace("http-equiv", "")
    command("look", toy_run, "--output", "other.html", "--language", "zh", stdin="w1 w2\n")
    assert 'lang="zh"' in (tmp_path / "other.html").read_text(encoding="utf-8")


def test_json_holds_numbers(toy_run: Path, tmp_path: Path) -> None:
    found = json.loads(command("look", toy_run, "w1 w2", "--target", "W2 W1", "--json"))
    assert not list(tmp_path.iterdir())
    assert found["text"] == "w1 w2"
    assert found["output"] == "W2 W1"
    assert found["model"]["kind"] == "transformer"
    assert "walk" not in found
    encoder, decoder, cross = (np.array(place["weights"], dtype=float) for place in found["places"])
    assert encoder.shape == cross.shape == decoder.shape == (1, 2, 3, 3)
    assert encoder.sum(-1) == pytest.approx(1.0, abs=2e-4)
    assert np.isnan(decoder[0, 0]).tolist() == [[False, True, True], [False, False, True], [False] * 3]
    assert np.array(found["rollout"]["encoder"]).shape == (1, 3, 3)


def test_two_texts_are_one_page_and_one_json(toy_run: Path, tmp_path: Path) -> None:
    assert command("look", toy_run, "w1 w2", "w1 w3", "--output", "pair.html") == ""
    assert '"looks":[{' in (tmp_path / "pair.html").read_text(encoding="utf-8")
    found = json.loads(command("look", toy_run, "w1 w2", "w1 w3", "--json"))
    assert [each["text"] for each in found["looks"]] == ["w1 w2", "w1 w3"]
    assert "walk" not in found["looks"][0]
    assert np.array(found["looks"][1]["places"][0]["weights"]).shape == (1, 2, 3, 3)
    assert {(head["place"], head["layer"], head["head"]) for head in found["moved"]["heads"]} == {
        (place, 1, head) for place in ("encoder", "decoder", "cross") for head in (1, 2)
    }
    with pytest.raises(RegardError, match="--png draws one text"):
        command("look", toy_run, "w1 w2", "w1 w3", "--png", "pair.png")


def test_heads_are_switched_off(toy_run: Path, tmp_path: Path) -> None:
    found = json.loads(command("look", toy_run, "w1 w2", "--ablate", "cross.1.1", "--ablate", "cross.1.2", "--json"))
    assert found["ablated"] == ["cross.1.1", "cross.1.2"]
    assert found["output_before"] == json.loads(command("look", toy_run, "w1 w2", "--json"))["output"]
    with pytest.raises(RegardError, match="there is no layer 4; write 1 to 1"):
        command("look", toy_run, "w1 w2", "--ablate", "cross.4.1")


def test_a_picture(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    command("look", toy_run, "w1 w2 $x$", "--png", "all.png")
    command("look", toy_run, "w1 w2", "--png", "one.svg", "--place", "encoder", "--layer", "1", "--head", "2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.png", "one.svg"]
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert "encoder self-attention, layer 1, head 2" in (tmp_path / "one.svg").read_text(encoding="utf-8")
    (tmp_path / "link").symlink_to("all.png")
    command("look", toy_run, "w1", "--png", "link")
    assert (tmp_path / "link").is_symlink()
    with pytest.raises(RegardError, match=r"link would overwrite the output all.png"):
        command("look", toy_run, "w1", "--output", "all.png", "--png", "link")
    for options, said in (
        (("--head", "3"), "there is no head 3; write 1 to 2"),
        (("--layer", "2"), "there is no layer 2; write 1 to 1"),
        (("--place", "other"), "no attention 'other'; it has encoder, decoder, cross"),
    ):
        with pytest.raises(RegardError, match=said):
            command("look", toy_run, "w1", "--png", "bad.png", *options)
    with pytest.raises(RegardError, match="strange: cannot be written"):
        command("look", toy_run, "w1", "--png", "a.strange")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RegardError, match=r"needs matplotlib; install regard\[plot\]"):
        command("look", toy_run, "w1", "--png", "bad.png")


def test_what_does_not_work_is_one_sentence(toy_run: Path) -> None:
    for arguments, stdin, said in (
        (("  ",), "", "no text to look at"),
        ((), "\n", "no text to look at"),
        (("w1", "--head", "1"), "", "choose what --png draws"),
        (("w1", "--language", "fr"), "", "--language is 'fr'; write en or zh"),
        (("w1 " * 300,), "", "more than the 200 that can be shown"),
        (("w1", "--output", "no/such/folder.html"), "", "cannot be written"),
    ):
        with pytest.raises(RegardError, match=said):
            command("look", toy_run, *arguments, stdin=stdin)


def test_trees_and_the_referent(toy_run: Path, tmp_path: Path) -> None:
    parse = "".join(f"{n}\tw{n}\t_\t_\t_\t_\t{n - 1}\t_\t_\t_\n" for n in (1, 2))
    (tmp_path / "one.conllu").write_text(parse, encoding="utf-8")
    (tmp_path / "two.conllu").write_text(f"{parse}\n{parse}", encoding="utf-8")
    command("look", toy_run, "w1 w2", "--trees", "one.conllu")  # a model that needs none reads none
    command("look", toy_run, "w1 w2", "w1 w3", "--trees", "two.conllu")
    with pytest.raises(RegardError, match=r"two.conllu, line 4: a sentence too many: the text has no line left for it"):
        command("look", toy_run, "w1 w2", "--trees", "two.conllu")
    with pytest.raises(RegardError, match=r"one.conllu: the file ends before line 2 of the texts"):
        command("look", toy_run, "w1 w2", "w1 w3", "--trees", "one.conllu")
    with pytest.raises(RegardError, match="3 words in the text, but heads for 2"):
        command("look", toy_run, "w1 w2 w3", "--trees", "one.conllu")
    found = json.loads(command("look", toy_run, "w1 w2", "--target", "W2 W1", "--referent", "w2/W2=w1", "--json"))
    assert found["route"]["referent"] == {"text": "w1", "at": [0]}
    with pytest.raises(RegardError, match="leads through one text"):
        command("look", toy_run, "w1 w2", "w1 w3", "--referent", "w2=w1")


def test_what_each_layer_would_say(toy_run: Path, tmp_path: Path) -> None:
    data = json.loads(command("look", toy_run, "w1 w2", "--lens", "--json"))
    assert [stage["after"] for stage in data["stages"]] == ["embedding", "attention", "cross", "feed_forward"]
    assert data["rows"][0]["at"] == "<s>"
    assert data["rows"][0]["says"] in command("look", toy_run, "w1 w2", "--lens")
    assert not list(tmp_path.iterdir())
    command("look", toy_run, "w1 w2", "--lens", "--output", "lens.html")
    assert '"lens":{' in (tmp_path / "lens.html").read_text(encoding="utf-8")


def test_outputs_of_one_text_in_another(toy_run: Path, tmp_path: Path) -> None:
    data = json.loads(command("look", toy_run, "w1 w2", "w1 w3", "--patch", "heads", "--patch", "encoder.1", "--json"))
    rows = {row["patch"]: row for row in data["patches"]}
    assert len(rows) == 3 * 2 + 1
    assert rows["encoder.1"]["recovered"] == pytest.approx(1, abs=1e-3)
    text = command("look", toy_run, "w1 w2", "w1 w3", "--patch", "encoder.1", "--answer", data["answer"])
    assert "encoder.1" in text
    assert "100.0%" in text
    command("look", toy_run, "w1 w2", "w1 w3", "--patch", "heads", "--output", "patches.html")
    page = (tmp_path / "patches.html").read_text(encoding="utf-8")
    assert '"patch":{' in page
    assert '"text":"w1 w3"' in page  # whose run it is


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["w1", "--patch", "heads"], "--patch takes two texts"),
        (["w1", "w2", "--lens"], "--lens reads one text; leave the second out"),
        (["w1", "w2", "--lens", "--patch", "heads"], "--lens reads one text, --patch two"),
        (["w1", "--lens", "--png", "x.png"], "leave out --ablate, --referent and --png"),
        (["w1", "--answer", "W1"], "--answer belongs to --patch"),
        (["w1", "w2", "--patch", "heads", "--answer", "Q9"], "the first text is answered without 'Q9'"),
    ],
)
def test_interventions_that_do_not_work(toy_run: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(RegardError, match=said):
        command("look", toy_run, *arguments)
