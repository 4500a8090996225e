"""Made data is laid out as the real sets are: the catalog reads every split of it, and so does Hugging Face."""

import os
from pathlib import Path

import pytest

from regard.data import catalog
from regard.data.sets import SETS
from regard.interop.bert_folder import import_bert
from tests import made_data


@pytest.mark.parametrize("name", SETS)
def test_the_catalog_reads_every_split(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    made_data.make(tmp_path, name, rows=12)
    for split in SETS[name].splits:
        rows = list(catalog.records(name, split))
        assert rows
        if SETS[name].layout not in ("text", "embedded", "vocabulary"):
            assert len(rows) == 12


@pytest.mark.parametrize("name", [name for name in SETS if SETS[name].layout not in ("embedded", "vocabulary")])
def test_records_have_the_keys_of_the_real_set(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.environ.get("REGARD_DATA")
    if not real or catalog.locate(SETS[name]) is None:
        pytest.skip("the real set is not on this machine")
    there = next(catalog.records(name, "valid"))
    made_data.make(tmp_path, name, rows=12)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    here = next(catalog.records(name, "valid"))
    assert {key: type(value) for key, value in here.items()} == {key: type(value) for key, value in there.items()}


def test_equal_arguments_give_equal_bytes(tmp_path: Path) -> None:
    for part in "ab":
        made_data.make_all(tmp_path / part, rows=5)
        made_data.make_own(tmp_path / part, rows=10)
        made_data.make_bert(tmp_path / part / "bert")
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert len(files) > 50
    for path in files:
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path


def test_the_bert_is_one_of_hugging_face(tmp_path: Path) -> None:
    folder = made_data.make_bert(tmp_path / "hf", layers=1, size=16, inner=24, heads=2)
    made = import_bert(folder, tmp_path / "run")
    assert made.recipe.model.layers == 1
    transformers = pytest.importorskip("transformers")
    _, report = transformers.BertModel.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
