"""Models by name: where they are looked for, what wins, and a sentence for a name that none has."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import regard
from regard import recipe as recipes
from regard.cli.interop import export_model
from regard.cli.serve import named_runs
from regard.cli.shipped.models import list_models, show_model
from regard.errors import RegardError
from regard.interop.model_folder import Storage
from regard.io import models
from regard.io.model_card import read_card, show_terms
from regard.io.models import find_model, known_models

CARD = """---
title: English to German
command: translate
terms: CC-BY 2.0 FR
noncommercial: {noncommercial}
unknown: is left out
---
# en-de

A toy.
"""


@pytest.fixture
def shipped(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the model en-de, which REGARD_MODELS names; another place has nothing."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    export_model("safetensors", toy_run, folder / "en-de", "int8", Storage(8))
    (folder / "en-de" / "README.md").write_text(CARD.format(noncommercial="false"), encoding="utf-8")
    monkeypatch.setenv("REGARD_MODELS", os.pathsep.join(["", str(tmp_path / "nothing"), str(folder)]))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


def test_a_name_is_a_model_and_a_path_wins(shipped: Path, toy_run: Path) -> None:
    assert find_model("en-de") == shipped / "en-de"
    both = [regard.load(name, "cpu").translate(["w1 w2"]) for name in ("en-de", shipped / "en-de")]
    assert both[0] == both[1]
    Path("en-de").symlink_to(toy_run)
    assert find_model("en-de") == Path("en-de")
    assert find_model("./en-dee") == Path("./en-dee")  # a path, whoever opens it says that there is none


def test_a_name_that_none_has_names_the_nearest(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegardError, match=r"^en-ed: there is no such folder, and no .* name; did you mean en-de?"):
        regard.load("en-ed", "cpu")
    monkeypatch.setattr(models, "models_folders", list)
    with pytest.raises(RegardError, match="no model is installed under a name; `regard models list`"):
        find_model("en-de")


def test_a_damaged_model_is_named_with_its_file(shipped: Path) -> None:
    path = shipped / "en-de" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 64
    path.write_bytes(content)
    with pytest.raises(RegardError, match=r"en-de/model.safetensors: damaged: not what was written, by its sha256"):
        regard.load("en-de", "cpu")


def test_an_installed_package_has_models(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "regard_models"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Models."""\n', encoding="utf-8")
    shutil.copytree(shipped / "en-de", package / "other")
    shutil.copytree(shipped / "en-de", package / "en-de")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "regard_models", raising=False)
    assert find_model("other") == package / "other"
    assert find_model("en-de") == shipped / "en-de"  # REGARD_MODELS comes first
    assert set(known_models()) >= {"en-de", "other"}


def test_a_server_and_a_recipe_take_names(shipped: Path, tmp_path: Path) -> None:
    assert named_runs(["en-de", f"two={shipped / 'en-de'}", "three=en-de"]) == dict.fromkeys(
        ["en-de", "two", "three"], shipped / "en-de"
    )
    recipe = {"data": {"train": "embedded:train"}, "training": {"init": "en-de", "steps": 1}}
    loaded = recipes.load_recipe(recipe)
    assert loaded.training.init == str(shipped / "en-de")
    assert loaded.model == recipes.read_recipe(shipped / "en-de").model  # a recipe without one has that of its origin


def test_list_and_show(shipped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list_models(as_json=True)
    row = json.loads(capsys.readouterr().out)[0]  # behind it those of this checkout
    assert {key: row[key] for key in ("name", "title", "command", "terms", "noncommercial")} == {
        "name": "en-de", "title": "English to German", "command": "translate", "terms": "CC-BY 2.0 FR",
        "noncommercial": False,
    }  # fmt: skip
    list_models(as_json=False)
    assert "English to German" in capsys.readouterr().out
    show_model("en-de", as_json=False)
    assert capsys.readouterr().out == "# en-de\n\nA toy.\n"
    (shipped / "en-de" / "README.md").write_text("---\n- [\n---\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"README.md: its head, between the lines ---, is not YAML"):
        read_card(shipped / "en-de")
    (shipped / "en-de" / "README.md").unlink()
    list_models(as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["command"] == "translate"  # of its recipe
    with pytest.raises(RegardError, match="this model has no card"):
        show_model("en-de", as_json=False)


def test_noncommercial_terms_are_said_once(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    show_terms(shipped / "en-de")
    assert capsys.readouterr().err == ""
    (shipped / "en-de" / "README.md").write_text(CARD.format(noncommercial="true"), encoding="utf-8")
    regard.load("en-de", "cpu")
    assert "en-de: for non-commercial use only (CC-BY 2.0 FR); its card: " in capsys.readouterr().err
    regard.load("en-de", "cpu")
    assert capsys.readouterr().err == ""
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))  # where nothing can be kept, it is said each time
    show_terms(shipped / "en-de")
    assert "non-commercial" in capsys.readouterr().err


@pytest.mark.parametrize("head", ["date: 2024-02-30", "x: !!int foo", "- a list"])
def test_a_card_that_is_no_yaml_of_keys_is_a_sentence(tmp_path: Path, head: str) -> None:
    (tmp_path / "README.md").write_text(f"---\n{head}\n---\ntext\n", encoding="utf-8")
    with pytest.raises(RegardError, match="its head, between the lines ---, is not YAML of keys and values"):
        read_card(tmp_path)
